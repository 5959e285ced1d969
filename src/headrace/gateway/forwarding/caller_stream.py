"""The caller's side of one stream: whole events of the engine's go out, and what was sent, and when, is known.

It outlives an attempt: a stream that begins at one engine may end at another. Counterpart: `delivery.py`.
"""

from dataclasses import dataclass

from headrace.gateway.forwarding.ports import DeliveryAccount, Meters
from headrace.gateway.forwarding.streams.watch import StreamWatch
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.sse import EVENT_ENDS, EventCutter, is_silence
from headrace.gateway.http.wire import STREAM_HEAD

HEARTBEAT = b": heartbeat\n\n"
"""A comment: clients skip it. Source: HTML standard, section 9.2.6."""


@dataclass(slots=True, eq=False)
class CallerStream:
    """Concurrency: event loop only. With slots, as `Exchange`."""

    exchange: Exchange
    account: DeliveryAccount
    meters: Meters
    reply_lines: bytes
    """Header lines of the answer's head."""
    watch: StreamWatch
    """Of the attempt under way."""
    cutter: EventCutter
    last_sent_mono_s: float = 0.0
    has_sent: bool = False
    """The commit point is passed: the caller has bytes of an answer."""
    last_output_mono_s: float = 0.0
    last_word_mono_s: float = 0.0
    """When anything else than output and silence came last; at first, when the attempt's stream began."""
    earlier_events: int = 0
    """Output events of the attempts before this one."""
    is_resumed: bool = False
    """The attempt under way goes on with what an earlier one began, and has not said anything yet."""

    @property
    def output_events(self) -> int:
        """Output events so far, of all attempts."""
        return self.earlier_events + self.watch.output_events

    @property
    def spoke_mono_s(self) -> float:
        """When the engine last said something. Comments and pings say nothing."""
        return max(self.last_output_mono_s, self.last_word_mono_s)

    def go_on(self, watch: StreamWatch, now_mono_s: float) -> None:
        """Another engine's answer goes on with the stream."""
        self.last_word_mono_s = now_mono_s
        self.earlier_events += self.watch.output_events
        self.watch = watch
        self.cutter = self.cutter.fresh()
        self.is_resumed = True

    def feed(self, data: bytes, now_mono_s: float) -> bool:
        """Take bytes of an answer, and send on what is whole of them; True where there is more to do than to wait.

        Raises: EventTooLargeError.
        """
        watch, cutter = self.watch, self.cutter
        if cutter.rest or not data.endswith(EVENT_ENDS):  # mostly whole events arrive
            data = cutter.feed(data)
            if not data:
                self.last_word_mono_s = now_mono_s  # an event is on its way
                return False
        before = watch.output_events
        passed = watch.feed(data)
        events = watch.output_events - before
        is_word = True
        if events == 1 and before:
            self.meters.itl.observe(now_mono_s - self.last_output_mono_s)
            self.last_output_mono_s = now_mono_s
        elif events:
            self._note_output(events, is_first=before == 0, now_mono_s=now_mono_s)
        elif is_silence(data):
            is_word = False
        else:
            self.last_word_mono_s = now_mono_s
        if passed:
            if not self.has_sent:
                self.has_sent = is_word
                self.exchange.begin_stream(self.reply_lines + STREAM_HEAD)  # a heartbeat may have begun it already
            self.last_sent_mono_s = now_mono_s
            self.exchange.send(passed)
        return watch.is_done or watch.error is not None

    def _note_output(self, events: int, *, is_first: bool, now_mono_s: float) -> None:
        if is_first and not self.is_resumed:
            if self.account.first_output_mono_s is None:
                self.account.first_output_mono_s = now_mono_s
        else:
            gap_s = now_mono_s - (self.last_output_mono_s or self.last_sent_mono_s)
            self.meters.itl.observe(gap_s)
            if self.is_resumed:
                self.is_resumed = False
                self.meters.resume_gap.observe(gap_s)
        if events > 1:
            self.meters.itl.observe(0.0, events - 1)
        self.last_output_mono_s = now_mono_s
