"""Cuts a byte stream at the boundaries of server-sent events, without parsing them.

Only whole events go on to a caller: half an event sent before an engine dies could never be mended.
Source: HTML standard, section 9.2.6 (a blank line ends an event; lines end in LF, CRLF or CR).
"""

EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


_TYPE = b"text/event-stream"


def is_event_stream(headers: dict[bytes, bytes]) -> bool:
    """Whether an answer with these headers is a stream of events that can be read, so not a compressed one."""
    kind = headers.get(b"content-type", b"")
    if not kind.startswith(_TYPE) and kind[: len(_TYPE)].lower() != _TYPE:  # in any case: RFC 9110, section 8.3.1
        return False
    return b"content-encoding" not in headers or headers[b"content-encoding"].lower() == b"identity"


class EventTooLargeError(Exception):
    """One event is larger than gateway.limits.event_bytes."""


class EventCutter:
    """Feed bytes as they come; get back all complete events, as raw bytes, and keep the rest.

    Engines end events with LF LF or CRLF CRLF; CR CR is in the standard but sent by none of them, and is left to the
    end of the stream.
    """

    __slots__ = ("_limit_bytes", "rest")

    def __init__(self, limit_bytes: int) -> None:
        self.rest = b""
        """Bytes of an event that is not complete yet."""
        self._limit_bytes = limit_bytes

    def fresh(self) -> "EventCutter":
        """A cutter with the same limit, for another stream of bytes."""
        return EventCutter(self._limit_bytes)

    def feed(self, block: bytes) -> bytes:
        """Return the complete events so far; may be empty. Raises: EventTooLargeError."""
        if not self.rest and block.endswith(EVENT_ENDS):
            return block
        searched = max(0, len(self.rest) - 3)  # what was searched before, less the start of a boundary
        joined = self.rest + block
        lf, crlf = joined.rfind(b"\n\n", searched), joined.rfind(b"\n\r\n", searched)
        cut = max(lf + 2 if lf >= 0 else 0, crlf + 3 if crlf >= 0 else 0)
        self.rest = joined[cut:]
        if len(self.rest) > self._limit_bytes:
            raise EventTooLargeError
        return joined[:cut]


def iter_events(block: bytes) -> list[bytes]:
    """Split whole events, each with its blank line at the end; joining them gives `block` again."""
    text = block
    events: list[bytes] = []
    start = 0
    while start < len(text):
        lf, crlf = text.find(b"\n\n", start), text.find(b"\n\r\n", start)
        ends = [end for end in (lf + 2 if lf >= 0 else -1, crlf + 3 if crlf >= 0 else -1) if end > 0]
        end = min(ends, default=len(text))
        events.append(text[start:end])
        start = end
    return events


def is_silence(block: bytes) -> bool:
    """Whether whole events say nothing: comments, and Anthropic's pings, by which an engine only keeps a line open."""
    if block.startswith(b"data:") and b'"ping"' not in block:  # nearly always
        return False
    for event in iter_events(block):
        payload = event_field(event, b"data")
        if payload is not None and not payload.replace(b" ", b"").startswith(b'{"type":"ping"'):
            return False
    return True


def event_field(event: bytes, name: bytes) -> bytes | None:
    """Return the value of the field `name` (`data`, `event`) of one event; several data lines are joined with LF."""
    values: list[bytes] = []
    for line in event.splitlines():
        if line.startswith(name) and line[len(name) : len(name) + 1] == b":":
            value = line[len(name) + 1 :]
            values.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(values) if values else None
