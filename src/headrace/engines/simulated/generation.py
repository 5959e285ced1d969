"""One generation request on its way: its choices in the engine, and their bytes on the connection.

Made by `service.py`, which feeds it the engine's emissions; a choice's text is a function of the prompt (`text.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engines.simulated.ask import Api, Ask, AskError, Prompt
from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.dialects.contract import Dialect
from headrace.engines.simulated.faults import Cut, Fault, FaultKind
from headrace.engines.simulated.formats import Finished, Format, Tally, encode_json
from headrace.engines.simulated.http import LAST_CHUNK, Connection, Reply, framed
from headrace.engines.simulated.schema_instance import SchemaError, instance_of, match_of
from headrace.engines.simulated.stats import RequestTimes
from headrace.engines.simulated.text import (
    Answer,
    FixedAnswer,
    NumberedAnswer,
    WordAnswer,
    continue_answer,
    encode,
    seed_of,
    split_own_answer,
)
from headrace.engines.simulated.transfer import Hold
from headrace.simulation.outcome import Emission, FinishReason, FirstToken

END_TOKEN = 1
"""The token that says that an answer is over; it counts and has no text."""


FRAMED_BYTES = 4
"""Length of almost all tokens (`text.WORDS`); they need no escaping in JSON."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """One sequence in the engine."""

    request_id: str
    index: int
    prompt: Prompt
    answer: Answer
    output_tokens: int
    """How many it would generate unless bounded, the end token included."""
    times: RequestTimes
    sent_tokens: int = 0
    texts: list[str] = field(default_factory=list[str])
    """Of a whole answer."""
    reason: str | None = None
    extra: dict[str, object] = field(default_factory=dict[str, object])
    frame: tuple[bytes, bytes] | None = None
    """What is around a token of FRAMED_BYTES in a stream, the chunk's size included."""


class Generation:
    """One HTTP request that generates. `is_over` once nothing more will be sent."""

    def __init__(self, connection: Connection, ask: Ask, dialect: Dialect, *, answer_id: str, name: str) -> None:
        self.connection = connection
        self.ask = ask
        self.answer_id = answer_id
        self.name = name
        """Unique in this process; its choices are `name-0`, `name-1`, ..."""
        self.choices: list[Choice] = []
        self.fault: Fault | None = None
        self.hold: Hold | None = None
        self.extra: dict[str, object] = {}
        """Members that a transfer protocol adds to the answer."""
        self.is_over = False
        self.is_stalled = False
        is_words = ask.constraint is None and ask.tool_call is None and ask.logprobs is None
        self.is_plain = ask.is_stream and is_words and ask.api in (Api.CHAT, Api.COMPLETIONS)
        """Whether `take_one` may be used, between the first token and the last."""
        self._stalled: list[bytes] = []
        self._dialect = dialect
        self._head_sent = False
        self._format: Format = dialect.answer_format(ask, answer_id)

    def begin(self) -> None:
        """The request was accepted: engines that do not wait for a token send the head of a stream now."""
        if self.ask.is_stream and not self._dialect.head_waits_for_token:
            self._head_sent = True
            self.connection.write(self.connection.begin_stream())

    def note_first_token(self, choice: Choice, first: FirstToken, admitted_mono_s: float, due_mono_s: float) -> None:
        """The engine says what it knows of a sequence at its first token."""
        choice.times.admitted_at_s = admitted_mono_s
        choice.times.first_token_at_s = due_mono_s
        hidden = 0 if self._dialect.reports_transferred_as_cached else first.transferred_tokens
        choice.times.cached_tokens = first.cached_tokens - hidden

    def take_one(self, choice: Choice) -> bytes:
        """One more token in the middle of a stream: `take`, for the thousand streams that get one at once."""
        piece = choice.answer.piece(choice.sent_tokens).encode()
        choice.sent_tokens += 1
        frame = choice.frame
        if frame is None:
            around = self._format.around(choice.index)
            size = sum(map(len, around)) + FRAMED_BYTES
            frame = choice.frame = (b"%x\r\n%b" % (size, around[0]), around[1] + b"\r\n")
        if len(piece) == FRAMED_BYTES:
            return frame[0] + piece + frame[1]
        return framed(self._format.delta(choice.index, piece.decode(), ()))

    def take(self, choice: Choice, emission: Emission) -> bytes:
        """New tokens of a choice: what a stream sends for them. Whole answers collect, and send nothing."""
        first = choice.sent_tokens
        is_first = first == 0
        choice.sent_tokens = first + emission.tokens
        text = choice.answer.text(first, min(emission.tokens, max(0, choice.answer.natural_tokens - first)))
        if emission.finish_reason is not None:
            choice.reason = "stop" if emission.finish_reason is FinishReason.STOP else "length"
        if not self.ask.is_stream:
            choice.texts.append(text)
            return b""
        events = self._format.opening(choice.index) if is_first else b""
        if choice.reason is None:
            events += self._format.delta(choice.index, text, (text,)) if text else b""
        else:
            events += self._format.closing(choice.index, text, choice.reason, choice.extra, self.tally())
            if self.is_complete:
                events += self._format.ending(self.tally(), self.extra)
                return self._with_head(framed(events) + LAST_CHUNK)
        return self._with_head(framed(events) if events else b"")

    def _with_head(self, data: bytes) -> bytes:
        if self._head_sent:
            return data
        self._head_sent = True
        return self.connection.begin_stream() + data

    @property
    def is_complete(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.reason is not None for choice in self.choices)

    def finish(self) -> None:
        """All is computed, and of a stream all is sent: send a whole answer, and free the connection."""
        self.is_over = True
        if self.ask.is_stream:
            self.connection.end()
        else:
            self.connection.reply(self._whole())

    def _whole(self) -> Reply:
        finished: list[Finished] = []
        for choice in self.choices:
            text = "".join(choice.texts)
            if self._dialect.echoes_continuation:
                text = choice.prompt.partial + text
            tokens = list(encode(text)) if self.ask.returns_token_ids else []
            finished.append(Finished(text=text, reason=choice.reason or "stop", tokens=tokens, extra=choice.extra))
        body = self._format.whole(finished, self.tally(), self.extra)
        reply = Reply.json(body)
        if self.fault is not None and self.fault.kind is FaultKind.MALFORMED:
            return Reply(body=reply.body[:-2])
        return reply

    def tally(self) -> Tally:
        firsts = [choice for choice in self.choices if choice.index % self.ask.choices == 0]
        prompt_tokens = sum(choice.times.prompt_tokens for choice in firsts)
        completion_tokens = sum(choice.sent_tokens for choice in self.choices)
        cached_tokens = sum(choice.times.cached_tokens for choice in firsts)
        times = self.choices[0].times
        first_s = times.first_token_at_s or times.arrived_at_s
        return Tally(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            cached_tokens=cached_tokens,
            usage=self._dialect.usage(prompt_tokens, completion_tokens, cached_tokens),
            prefill_s=max(0.0, first_s - (times.admitted_at_s or first_s)),
            decode_s=max(0.0, times.last_token_at_s - first_s),
        )

    def fail(self, error: AskError) -> None:
        """End with an error: an answer where nothing was sent yet, else an event in the stream."""
        if self.is_over:
            return
        self.is_over = True
        if not self._head_sent:
            self.connection.reply(self._dialect.error(error, self.ask.api))
            return
        self.connection.write(framed(self._dialect.error_event(error)) + LAST_CHUNK)
        self.connection.end()

    # faults

    def broken(self, choice: Choice, data: bytes) -> tuple[bytes, Callable[[], None] | None]:
        """What the fault makes of `data`, and what happens after it is sent."""
        fault = self.fault
        if self.is_stalled:
            self._stalled.append(data)
            return b"", None
        if fault is None or not self.ask.is_stream or choice.sent_tokens <= fault.after_tokens:
            return data, None
        match fault.kind:
            case FaultKind.MALFORMED:
                return data.replace(b"}\n\n", b"\n\n").replace(b'{"', b"{|"), None
            case FaultKind.CUT if fault.how is Cut.ERROR_EVENT:
                return b"", lambda: self.fail(self._dialect.cut_error())
            case FaultKind.CUT:
                return data[: len(data) // 2], self._reset if fault.how is Cut.RST else self._close
            case FaultKind.STALL:
                self.is_stalled = True
                self._stalled.append(data)
                return b"", None
            case _:
                return data, None

    def resume(self) -> None:
        """A stall is over: what was computed meanwhile is sent at once."""
        self.is_stalled = False
        self.fault = None
        self.connection.write(b"".join(self._stalled))
        self._stalled.clear()
        if self.is_complete and not self.is_over:
            self.finish()

    def _close(self) -> None:
        self.is_over = True
        self.connection.close()

    def _reset(self) -> None:
        self.is_over = True
        self.connection.reset()


def answer_of(ask: Ask, prompt: Prompt, index: int, config: EngineConfig) -> Answer:
    """What the engine says to a prompt.

    Raises: AskError 400 for a constraint that cannot be kept.
    """
    if ask.tool_call is not None:
        return FixedAnswer(_json_text(ask.tool_call.schema))
    if ask.constraint is not None:
        return _constrained(ask)
    seed = seed_of(config.served_model, prompt.segments, index % ask.choices)
    natural_tokens = max(_natural_tokens(seed, config), ask.min_tokens)
    if ask.ignores_eos or config.is_numbered:
        natural_tokens = config.context_tokens
    if config.is_numbered:
        return NumberedAnswer(natural_tokens)
    if prompt.partial:
        return continue_answer(config.served_model, prompt.segments, prompt.partial, natural_tokens)
    if len(prompt.segments) == 1 and (split := split_own_answer(config.served_model, prompt.segments[0])):
        return continue_answer(config.served_model, [split[0]], split[1], natural_tokens)
    return WordAnswer(seed, natural_tokens)


def bounded_by_stop(ask: Ask, answer: Answer, limit_tokens: int) -> tuple[Answer, bool]:
    """The answer up to the first stop text, and whether there is one."""
    if not ask.stop or ask.ignores_eos:
        return answer, False
    text = answer.text(0, min(answer.natural_tokens, limit_tokens))
    ends = [at for stop in ask.stop if (at := text.find(stop)) >= 0]
    return (FixedAnswer(text[: min(ends)]), True) if ends else (answer, False)


def _natural_tokens(seed: bytes, config: EngineConfig) -> int:
    shortest, longest = config.answer_tokens
    return shortest + int.from_bytes(seed[:4], "little") % (longest - shortest + 1)


def _constrained(ask: Ask) -> Answer:
    constraint = ask.constraint
    assert constraint is not None
    if constraint.choices:
        return FixedAnswer(constraint.choices[0])
    if constraint.pattern is not None:
        try:
            return FixedAnswer(match_of(constraint.pattern))
        except SchemaError as error:
            raise AskError(400, f"Invalid grammar specification: {error}") from error
    return FixedAnswer(_json_text(constraint.schema))


def _json_text(schema: object) -> str:
    try:
        return encode_json(instance_of(schema)).decode()
    except (SchemaError, TypeError, ValueError, ArithmeticError) as error:
        raise AskError(400, f"Invalid grammar specification: {error}") from error
