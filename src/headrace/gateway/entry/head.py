"""What is known once the headers are there: route, request id, trace context, deadline."""

import re

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import RequestUid
from headrace.gateway.entry.routes import ROUTES, Route, find_route, refusal_of
from headrace.gateway.http.exchange import Exchange
from headrace.ledger.uid import UidSource

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""Version 00 only; anything else is replaced. Source: W3C Trace Context, section 3.2."""


class RequestHead(msgspec.Struct):
    """The head of one request: one is made per request, hence a Struct and no properties that build anything."""

    uid: RequestUid
    request_id: str
    trace_id: str
    received_at: float
    """UTC epoch seconds."""
    reply_lines: bytes
    """Header lines that every answer carries."""
    engine_lines: bytes
    """Header lines that every attempt at an engine carries, the last of them to be ended by the attempt's number.

    The engine's request id is ours, not the caller's: vLLM names requests by it, and two of one name collide.
    """
    route: Route | None
    timeout_s: float | None = None
    """The caller's own deadline, from `x-request-timeout`, relative to the complete request."""


class HeadReader:
    """Reads heads; makes the ids that a caller did not bring."""

    def __init__(self) -> None:
        self._uids = UidSource()

    def read(self, exchange: Exchange, received_at: float) -> RequestHead:
        """Read the head of `exchange`; sets `exchange.error` where its path, method or a header is not served."""
        uid = self._uids.make_uid(received_at)
        headers = exchange.headers
        given_id = headers.get(b"x-request-id")
        usable_id = given_id is not None and _REQUEST_ID.fullmatch(given_id)
        request_id = given_id.decode("ascii") if given_id is not None and usable_id else f"req_{uid}"
        trace = headers.get(b"traceparent")
        if trace is not None and _TRACEPARENT.fullmatch(trace):
            traceparent, trace_id, tracestate = (
                trace.decode("ascii"),
                trace[3:35].decode("ascii"),
                headers.get(b"tracestate"),
            )
        else:
            traceparent, trace_id, tracestate = f"00-{uid}-{uid[16:]}-01", str(uid), None
        reply_lines = f"x-request-id: {request_id}\r\ntraceparent: {traceparent}\r\n".encode("ascii")
        engine_lines = f"traceparent: {traceparent}\r\nx-request-id: {uid}".encode("ascii")
        if tracestate is not None:
            engine_lines = b"tracestate: %b\r\n%b" % (tracestate, engine_lines)
        route = ROUTES.get(exchange.path) or find_route(exchange.path)
        head = RequestHead(uid, request_id, trace_id, received_at, reply_lines, engine_lines, route)
        error = exchange.error
        if error is None and (route is None or exchange.method not in route.methods):
            error = refusal_of(route, exchange.method)
        if error is None and b"content-encoding" in headers:
            error = RequestError(
                ErrorCode.INVALID_REQUEST, "compressed bodies are not read; leave out content-encoding"
            )
        if error is None and b"x-request-timeout" in headers:
            head.timeout_s, error = _read_timeout(headers[b"x-request-timeout"])
        exchange.error = error
        return head


def _read_timeout(value: bytes) -> tuple[float | None, RequestError | None]:
    try:
        timeout_s = float(value)
    except ValueError:
        timeout_s = -1.0
    if 0 < timeout_s <= 86400:
        return timeout_s, None
    message = "x-request-timeout must be seconds, more than 0 and at most 86400"
    return None, RequestError(ErrorCode.INVALID_REQUEST, message)
