"""The shell of a disaggregated request over real sockets: it does what the playbook says, and decides nothing."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    ClaimDecode,
    DecodeClaimed,
    End,
    Event,
    FileWeighed,
    FirstTokenArrived,
    FreeHeld,
    FreeSlot,
    HandoverEnd,
    Leg,
    LegAnswered,
    LegLost,
    LegOverdue,
    LegRefused,
    RemoveFile,
    SendLeg,
    Side,
    WeighFile,
)
from headrace.gateway.handover.core.playbook import Playbook
from headrace.gateway.handover.core.slot_book import SlotBook

PATH = "/v1/chat/completions"
WHOLE = {"stream": False, "stream_options": None}
ANSWER_S = 120.0
"""A slow machine's longest answer; the playbook's bounds are shorter."""


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _Cached(msgspec.Struct):
    cached_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Cached | None = None


class _Message(msgspec.Struct):
    content: str


class _WholeChoice(msgspec.Struct):
    message: _Message


class _Whole(msgspec.Struct):
    choices: list[_WholeChoice]


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


@dataclass(kw_only=True)
class Shell:
    """One request. `whole_url` answers it where the hand-over fails."""

    urls: Mapping[Side, str]
    whole_url: str
    asked: Mapping[str, object]
    folder: Path | None = None
    """Where slots are saved."""
    books: Mapping[Side, SlotBook] = field(default_factory=dict[Side, SlotBook])
    before_leg: Callable[[Leg], None] = lambda _: None
    """What goes wrong just before a leg is sent."""
    before_look: Callable[[], None] = lambda: None
    """What goes wrong just before a saved file is looked at."""
    due_s: Mapping[Leg, float] = field(default_factory=dict[Leg, float])
    """Shorter bounds than the playbook's, of legs that cannot be answered."""
    sent: list[Leg] = field(default_factory=list[Leg])
    on_first_token: Callable[[], None] = lambda: None
    """What goes wrong when decode's first token is here."""
    whole_fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """What the whole request has beside what was asked."""
    is_callers_fault: Callable[[int, bytes], bool] = lambda _, __: False
    """Of a refusal's status and body: whether every engine would refuse it."""
    answers: dict[Leg, bytes] = field(default_factory=dict[Leg, bytes])
    """Bodies of the legs that were answered whole, and of those that were refused."""
    text: str = ""
    cached_tokens: int = 0
    """What decode says it had of the prompt."""
    took_s: float = 0.0
    """Until the playbook's end."""
    first_token_s: float | None = None
    """Until decode's."""
    fallback_s: float = 0.0
    """What the whole answer took."""

    async def run(self, playbook: Playbook) -> End:
        """Drive `playbook` to its end, and past it: the whole answer is in `text`."""
        self._started_mono_s = time.monotonic()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: dict[Leg, asyncio.Task[None]] = {}
        self._timers: list[asyncio.TimerHandle] = []
        async with httpx.AsyncClient(timeout=ANSWER_S) as client:
            self._client = client
            freed = [await self._do(action) for action in playbook.start(time.monotonic())]
            while playbook.end is None:
                event = await self._events.get()
                freed += [await self._do(action) for action in playbook.on(event, time.monotonic())]
            self.took_s = self._since_start_s()
            for timer in self._timers:
                timer.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await asyncio.gather(*[task for task in freed if task is not None], return_exceptions=True)
            if playbook.end.how is HandoverEnd.FELL_BACK:
                self.text = (await self._ask_whole())["choices"][0]["message"]["content"]
                self.fallback_s = self._since_start_s() - self.took_s
        return playbook.end

    def leave(self) -> None:
        """The caller waits no longer."""
        self._events.put_nowait(CallerLeft())

    def _since_start_s(self) -> float:
        return time.monotonic() - self._started_mono_s

    async def _ask_whole(self) -> dict[str, list[dict[str, dict[str, str]]]]:
        answer = await self._client.post(self.whole_url + PATH, json={**self.asked, **WHOLE, **self.whole_fields})
        return answer.raise_for_status().json()

    async def _do(self, action: Action) -> "asyncio.Task[None] | None":
        match action:
            case SendLeg():
                self.sent.append(action.leg)
                self.before_leg(action.leg)
                self._tasks[action.leg] = asyncio.ensure_future(self._leg(action))
                loop = asyncio.get_running_loop()
                within_s = self.due_s.get(action.leg, action.within_s)
                self._timers.append(loop.call_later(within_s, self._events.put_nowait, LegOverdue(action.leg)))
            case CancelLeg():
                self._tasks[action.leg].cancel()
            case ClaimDecode():
                slot = self.books[Side.DECODE].try_claim() if self.books else None
                self._events.put_nowait(DecodeClaimed(slot))
            case WeighFile():
                assert self.folder is not None
                self.before_look()
                file = self.folder / action.name
                self._events.put_nowait(FileWeighed(file.stat().st_size if file.exists() else None))
            case FreeHeld():
                return asyncio.ensure_future(self._call(action))
            case FreeSlot():
                self.books[action.side].free(action.slot)
            case RemoveFile():
                self._remove(action.name)
            case End():
                pass
        return None

    async def _call(self, action: FreeHeld) -> None:
        with contextlib.suppress(httpx.TransportError):
            body = action.request.body(b"")
            await self._client.post(self.urls[action.side] + (action.request.path or ""), content=body, timeout=5)
        if action.then_removes is not None:
            self._remove(action.then_removes)

    def _remove(self, name: str) -> None:
        assert self.folder is not None
        (self.folder / name).unlink(missing_ok=True)

    async def _leg(self, send: SendLeg) -> None:
        url = self.urls[send.leg.side] + (send.request.path or PATH)
        body = send.request.body(msgspec.json.encode(dict(self.asked)))
        headers = {"content-type": "application/json", **send.request.headers}
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as answer:
                if answer.status_code >= 300:
                    self._events.put_nowait(self._refusal(send.leg, answer.status_code, await answer.aread()))
                    return
                content = await self._decode(answer) if send.leg is Leg.DECODE else await answer.aread()
                self.answers[send.leg] = content
        except httpx.TransportError:
            self._events.put_nowait(LegLost(send.leg))
            return
        self._events.put_nowait(LegAnswered(send.leg, content))

    def _refusal(self, leg: Leg, status: int, body: bytes) -> LegRefused:
        self.answers[leg] = body
        return LegRefused(leg, status, body, is_callers_fault=self.is_callers_fault(status, body))

    async def _decode(self, answer: httpx.Response) -> bytes:
        if not self.asked.get("stream"):
            body = await answer.aread()
            self.text = msgspec.json.decode(body, type=_Whole).choices[0].message.content
            return body
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = msgspec.json.decode(line.removeprefix("data: "), type=_Event)
            choices = event.choices
            if event.usage is not None and event.usage.prompt_tokens_details is not None:
                self.cached_tokens = event.usage.prompt_tokens_details.cached_tokens
            if choices and choices[0].delta.content:
                if not self.text:
                    self.first_token_s = self._since_start_s()
                    self._events.put_nowait(FirstTokenArrived())
                    self.on_first_token()
                self.text += choices[0].delta.content
        return b""
