"""Hands short prompts over between endpoints that never did: the first time two engines connect it takes seconds, and
how fast prefill computes is not known. Nobody waits for these, and no caller is charged.

Also here: files of hand-overs that nobody removed (a gateway was killed) are removed once they are old.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import msgspec
import structlog

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.tenant import Caller
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.handed_over import Leaving
from headrace.gateway.forwarding.handover import make_handover
from headrace.gateway.forwarding.phase import SENT, Phase
from headrace.gateway.forwarding.ports import ForwardingSettings
from headrace.gateway.forwarding.resumption import Resumption
from headrace.gateway.handover.playbooks import FILE_PREFIX
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import LossReason

log = structlog.get_logger("headrace.gateway")
LOOK_S = 0.5
WORDS = (32, 96, 256)
"""Lengths of the prompts, by turns: enough to tell what is fixed from what a token takes. Chosen."""
SWEEP_S = 30.0
OLD_S = 300.0
"""A file of a hand-over is needed for some seconds. Chosen."""


@dataclass(slots=True, eq=False)
class WarmUpAccount:
    """Implements `DeliveryAccount`; nobody is charged."""

    request_id: str = "warm-up"
    caller: Caller | None = None
    attempts: int = 0
    dispatched_mono_s: float | None = None
    first_output_mono_s: float | None = None
    endpoint: str | None = None
    pool: str | None = None
    engine: str | None = None
    usage: TokenUsage = UNKNOWN_USAGE
    output_events: int = 0
    detail: str | None = None


class WarmUp:
    """One short prompt on its way. Implements `HandedOver`: what it hears is of no account."""

    def __init__(self, settings: ForwardingSettings, pair: ChosenPair, words: int) -> None:
        self.settings = settings
        self.request = warm_up_request(pair.decode.plan.model, words)
        self.extra_lines = b"x-request-id: headrace-warm-up"
        self.account = WarmUpAccount()
        self.phase: Phase = SENT
        self.first_claim: Claim | None = None
        self.handover: Leaving | None = None
        self.is_split = True
        self.tried: tuple[Endpoint, ...] = ()
        self.resumption: Resumption | None = None
        self.is_over = False
        self._attempt: Attempt | None = None
        self._sending: Sending | None = None

    def start(self, pair: ChosenPair) -> None:
        """Send it."""
        self.settings.candidates.acquaint(self.request, pair)
        handover = make_handover(self, pair)
        if handover is None:
            self.is_over = True
            return
        self.handover = handover
        handover.start()

    def rejoin(self, endpoint: Endpoint, now: float) -> bool:
        return False

    def take(self, attempt: Attempt, sending: Sending | None) -> None:
        self._attempt, self._sending = attempt, sending

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        pass

    def answer_bytes(self, data: bytes) -> None:
        pass

    def answer_complete(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.answered(UNKNOWN_USAGE)
        self.is_over = True

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.leave()
        self.is_over = True

    def crashed(self, bug: Exception) -> None:
        log.error("internal bug in a warm-up", error=repr(bug), exc_info=bug)
        self.end()

    def end(self) -> None:
        """Nobody needs it any more."""
        if self.handover is not None:
            self.handover.leave()
        if self._sending is not None:
            self._sending.cancel()
        self.answer_lost(LossReason.BROKEN, "")

    def start_over(self) -> None:
        self.is_over = True

    def try_again(self, code: ErrorCode, now: float) -> None:
        self.is_over = True

    def attempt_at(self, endpoint: Endpoint) -> None:
        self.is_over = True

    def fail(self, error: RequestError) -> None:
        self.is_over = True


class WarmUps:
    """The task of one worker that does this. `settings`: as they are now, None before the first plan."""

    def __init__(
        self,
        settings: Callable[[], ForwardingSettings | None],
        folders: Callable[[], Iterable[Path]],
        cold_pairs: Callable[[], Iterable[ChosenPair]],
    ) -> None:
        self._settings = settings
        self._folders = folders
        self._cold_pairs = cold_pairs
        self._active: dict[Endpoint, WarmUp] = {}
        """By prefill endpoint: one at a time."""
        self._turn = 0
        self._swept_mono_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._look()
                if monotonic() - self._swept_mono_s > SWEEP_S:
                    self._swept_mono_s = monotonic()
                    await asyncio.get_running_loop().run_in_executor(None, remove_old, tuple(self._folders()))
                await asyncio.sleep(LOOK_S)
        finally:
            for warm_up in self._active.values():
                warm_up.end()

    def _look(self) -> None:
        settings = self._settings()
        if settings is None:
            return
        self._active = {giver: one for giver, one in self._active.items() if not one.is_over}
        for pair in self._cold_pairs():
            if pair.prefill in self._active:
                continue
            self._turn += 1
            warm_up = self._active[pair.prefill] = WarmUp(settings, pair, WORDS[self._turn % len(WORDS)])
            try:
                warm_up.start(pair)
            except Exception as bug:  # noqa: BLE001 (boundary of one warm-up)
                warm_up.crashed(bug)


def warm_up_request(model: str, words: int) -> InferenceRequest:
    """A prompt that no caller sends."""
    text = "".join(f"{number} " for number in range(words))
    body = {
        "model": model,
        "messages": [{"role": "user", "content": f"Count on: {monotonic()} {text}"}],
        "max_tokens": 2,
        "stream": True,
        "temperature": 0,
    }
    encoded = msgspec.json.encode(body)
    return InferenceRequest(
        dialect=ApiDialect.CHAT_COMPLETIONS,
        path=b"/v1/chat/completions",
        requested_model=model,
        body=encoded,
        fields=msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]),
        is_stream=True,
        wants_usage=False,
        output_limit_tokens=2,
        estimated_input_tokens=2 * words,
    )


def remove_old(folders: Iterable[Path], now_at: float | None = None) -> int:
    """Remove files of hand-overs that are old enough to be nobody's; returns how many."""
    now_at = time.time() if now_at is None else now_at  # noqa: TID251 (compared with files' times)
    removed = 0
    for folder in folders:
        for file in folder.glob(f"{FILE_PREFIX}*.bin"):
            try:
                if now_at - file.stat().st_mtime > OLD_S:
                    file.unlink()
                    removed += 1
            except OSError:  # somebody else was faster
                continue
    return removed
