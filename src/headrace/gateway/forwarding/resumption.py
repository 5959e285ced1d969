"""One stream on its way to another engine: what its caller has, whether it may go on, where, and with which body.

Made at a stream's first break. Counterpart: `delivery.py`, which makes the attempts; docs/resume.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.tenant import Caller
from headrace.engines.continuation import NO_CONTINUATION, ContinuationRow, Tokenizing
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.attempt_request import attempt_body
from headrace.gateway.forwarding.core.bars import BAR_TEXT, Had, ResumeBar, ResumeCause
from headrace.gateway.forwarding.core.resumable import find_bar, may_be_resumable
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.ports import FAILURE_TEXT, Candidates, Meters, ResumeSettings
from headrace.gateway.forwarding.resuming_body import (
    CannotResumeError,
    check_row,
    output_left,
    resuming_body,
    said_again,
    seam_for,
)
from headrace.gateway.forwarding.streams.resumed import RESUMABLE, closing, resumed_watch
from headrace.gateway.forwarding.streams.watch import StreamWatch, watch_for
from headrace.gateway.forwarding.token_count import TokenCount

_ONE_CHOICE = (None, msgspec.Raw(b"1"), msgspec.Raw(b"null"))
NOTHING = Had(text="", tokens=0, first_event=b"")


def begin_stream(request: InferenceRequest, endpoint: Endpoint, settings: ResumeSettings) -> StreamWatch:
    """Return the watcher of a stream at its head; its text is kept where, at a first look, nothing bars a resume."""
    if not settings.enabled or not endpoint.plan.is_resumed:
        bar = ResumeBar.OFF
    elif request.dialect not in RESUMABLE:
        bar = ResumeBar.API
    elif request.dialect not in endpoint.driver.dialect.continuation.apis:
        bar = ResumeBar.ENGINE
    elif not may_be_resumable(request.fields):
        bar = ResumeBar.FIELD
    else:
        settings.budget.count_request()
        bar = None
    return watch_for(request, bar)


def may_move(request: InferenceRequest, watch: StreamWatch, settings: ResumeSettings) -> bool:
    """Whether a stream that is well may be taken from its engine, to go on at another."""
    had = None if watch.kept is None else watch.had()
    if had is None or isinstance(had, ResumeBar) or had.is_finished:
        return False
    return find_bar(request.fields, allows_seeded=settings.seeded) is None


@dataclass(frozen=True, slots=True)
class TokenQuestion:
    """Ask an engine for the tokens of a text, and then what to do next."""

    endpoint: Endpoint
    tokenizing: Tokenizing
    text: str
    note: Callable[[list[int] | None], None]

    def ask(self, then: Callable[[], None]) -> None:
        """Ask it, note the answer, and go on with `then`."""

        def told(tokens: list[int] | None) -> None:
            self.note(tokens)
            then()

        TokenCount(self.endpoint, self.tokenizing, self.text, told)


@dataclass(slots=True, eq=False)
class Resumption:
    """Concurrency: event loop only."""

    request: InferenceRequest
    caller: Caller | None
    settings: ResumeSettings
    meters: Meters
    cause: ResumeCause = ResumeCause.DIED
    had: Had = NOTHING
    sent: Had = NOTHING
    """The same, as the attempt under way counts it."""
    bar: ResumeBar | None = None
    """Why the stream that broke kept no text."""
    is_counted: bool = False
    """The tokens of what the caller has were told by an engine, or cannot be."""
    row: ContinuationRow = NO_CONTINUATION
    """Of the engine that broke."""
    is_usage_sent: bool = False
    end: bytes = b""
    """What ends the stream, where only its end is missing."""
    resumes: int = 0
    until_mono_s: float = 0.0
    """Until then a ready endpoint is waited for."""
    body: bytes = b""
    """Of the attempt under way."""
    seam: Seam | None = None

    def broke(
        self, watch: StreamWatch, row: ContinuationRow, cause: ResumeCause, now_mono_s: float, *, is_told: bool
    ) -> None:
        """An attempt ended before the stream did: note what the caller has. `is_told`: its engine sent an error."""
        found, before = watch.had(), self.had.tokens
        self.cause, self.is_counted = cause, False
        self.bar, self.had = (found, NOTHING) if isinstance(found, ResumeBar) else (None, found)
        if self.request.fields.get("n") not in _ONE_CHOICE:
            self.bar = ResumeBar.CHOICES
        if self.had.tokens > before or not self.until_mono_s:
            self.until_mono_s = now_mono_s + self.settings.wait_s
        if self.had.is_finished and is_told:
            self.bar = ResumeBar.REFUSED
        self.row, self.is_usage_sent = row, watch.usage is not None
        self._look_for_end()

    def step(
        self, candidates: Candidates, tried: tuple[Endpoint, ...], now_mono_s: float
    ) -> Endpoint | TokenQuestion | RequestError | bytes | None:
        """Say what to do next: attempt here, ask this first, end with this error, end well with these bytes; None: look
        again soon.
        """
        found = self.end or self._pick(candidates, tried, now_mono_s)
        if isinstance(found, ResumeBar):
            counts = self.meters.unresumed
            counts[found.value] = counts.get(found.value, 0) + 1
            code = ErrorCode.STREAM_STALLED if self.cause is ResumeCause.STALLED else ErrorCode.STREAM_BROKEN
            return RequestError(code, f"{FAILURE_TEXT[code]}; not resumed: {BAR_TEXT[found]}; send the request again")
        if isinstance(found, Endpoint):
            resumes, cause = self.meters.resumes, self.cause.value
            resumes[cause] = resumes.get(cause, 0) + 1
        return found

    def _pick(
        self, candidates: Candidates, tried: tuple[Endpoint, ...], now_mono_s: float
    ) -> Endpoint | TokenQuestion | ResumeBar | None:
        """Choose where to go on, and make the body for it; None: nothing is ready yet. Takes from the budget."""
        if self.resumes >= self.settings.max_resumes:
            return ResumeBar.ATTEMPTS
        bar = self._request_bar()
        while bar is None:
            try:
                endpoint = candidates.choose(self.request, tried)
            except RequestError:
                return ResumeBar.NO_ENDPOINT if now_mono_s >= self.until_mono_s else None
            tokenizing = endpoint.driver.dialect.continuation.tokenizing
            if tokenizing is not None and not self.is_counted and self.had.text:
                row = endpoint.driver.dialect.continuation
                text = self.had.text.removesuffix(said_again(self.request, self.had, row))
                return TokenQuestion(endpoint, tokenizing, text, self.counted)
            bar = self._prepare(endpoint)
            if bar is None:
                # One that is taken away is well: its streams are moved without asking what dying pools may be asked.
                if self.cause is not ResumeCause.DRAINED and not self.settings.budget.try_retry(now_mono_s):
                    return ResumeBar.BUDGET
                self.resumes += self.cause is not ResumeCause.DRAINED
                return endpoint
            if endpoint not in tried:
                tried += (endpoint,)
                bar = None if candidates.has_other(self.request, tried) else bar
        return bar

    def counted(self, tokens: list[int] | None) -> None:
        """The tokens of the text, as an engine has them: never fewer than came in events of their own."""
        self.is_counted = True
        if tokens is not None:
            self.had = replace(self.had, tokens=max(len(tokens), self.had.tokens), token_ids=tuple(tokens))
            self._look_for_end()

    def _look_for_end(self) -> None:
        """Where the answer is finished, or as long as it may be, only its end is missing."""
        left = output_left(self.request, self.had, self.row)
        is_whole = self.had.is_finished or (bool(self.had.text) and left is not None and left <= 0)
        if self.bar is None and is_whole:
            self.end = closing(self.request, self.had, is_usage_sent=self.is_usage_sent)

    def was_refused(self) -> None:
        """Nobody listened where it went: that does not count as a resume."""
        self.resumes = max(0, self.resumes - 1)

    def watch(self) -> StreamWatch:
        """The watcher of the stream that goes on."""
        assert self.seam is not None
        return resumed_watch(self.request, self.sent, self.seam)

    def _request_bar(self) -> ResumeBar | None:
        """Why the request may not be resumed anywhere."""
        if not self.settings.enabled:
            return ResumeBar.OFF
        if self.request.dialect not in RESUMABLE:
            return ResumeBar.API
        bar = find_bar(self.request.fields, allows_seeded=self.settings.seeded)
        return bar or self.bar

    def _prepare(self, endpoint: Endpoint) -> ResumeBar | None:
        """Make body and seam for an endpoint, or say why it cannot go on there."""
        row = endpoint.driver.dialect.continuation
        if not endpoint.plan.is_resumed:
            return ResumeBar.OFF
        try:
            check_row(row, self.request.dialect)
            first = attempt_body(self.request, endpoint, self.caller)
            # What is said again is one token mostly, and not had yet.
            is_again = bool(said_again(self.request, self.had, row)) and self.had.tokens > 0
            self.sent = replace(self.had, tokens=self.had.tokens - is_again)
            self.body = resuming_body(first, self.request, self.sent, row)
        except CannotResumeError as error:
            return error.bar
        self.seam = seam_for(self.request, self.had, row)
        return None
