"""Hands requests over between the two real engines of a pair with our own playbooks: `Desk.ask`."""

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
from tests.harness.handover_shell import ANSWER_S, PATH, WHOLE, Shell
from tests.real.figures import FIGURES
from tests.real.installation import tell
from tests.real.pairs import EnginePair

from headrace.declaration.builtin import BUILTIN_MODEL
from headrace.domain.errors import ERRORS, Fault
from headrace.domain.request import ApiDialect
from headrace.engines.handover import TicketWords, find_handover_words
from headrace.engines.sglang.handover import SglangHandover
from headrace.engines.vllm.handover import VllmHandover
from headrace.gateway.handover.core.events import End, Leg, Side
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.core.room_playbook import ROOMS, Meeting, RoomPlaybook
from headrace.gateway.handover.core.ticket_playbook import TicketPlaybook
from headrace.gateway.handover.core.tickets import SpentTickets

PATIENT = Expected(prefill_s=40.0, transfer_s=20.0, first_token_s=20.0)
"""For what goes well, however slow the machine."""

SETTLE_S = 120.0
"""KV that nobody fetched is kept for 30 s by vLLM; a machine may be slow."""

TELLING_S = 5.0

Question = dict[str, object]


def question(subject: str, sentences: int = 8, *, is_streamed: bool = True, max_tokens: int = 24) -> Question:
    """`sentences` of about 13 tokens each. A subject of its own: nobody has its KV."""
    text = f"Write about {subject}. " + f"It should be said that {subject} is known to many people. " * sentences
    body: Question = {
        "model": BUILTIN_MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": is_streamed,
    }
    return {**body, "stream_options": {"include_usage": True}} if is_streamed else body


@dataclass(kw_only=True)
class Desk:
    """What the gateway would know of a pair."""

    pair: EnginePair
    spent: SpentTickets = field(default_factory=SpentTickets)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def playbook(self, expected: Expected, words: TicketWords | None = None) -> Playbook:
        """One attempt, with an id of its own."""
        found = words or find_handover_words(self.pair.recipe.kind)
        attempt_id = f"attempt-{next(self.numbers)}-{secrets.token_hex(4)}"
        if isinstance(found, SglangHandover):
            meeting = Meeting(host="127.0.0.1", port=self.pair.transfer_port, room=secrets.randbelow(ROOMS))
            return RoomPlaybook(found, expected, attempt_id=attempt_id, meeting=meeting)
        assert isinstance(found, VllmHandover)
        api = ApiDialect.CHAT_COMPLETIONS
        return TicketPlaybook(found, self.spent, expected, attempt_id=attempt_id, api=api)

    def shell(
        self,
        asked: Question,
        *,
        at_fault: Side | None = None,
        before_leg: Callable[[Leg], None] = lambda _: None,
        on_first_token: Callable[[], None] = lambda: None,
    ) -> Shell:
        """One request; whole it goes to an engine other than the one that will be at fault."""
        driver = self.pair.prefill.driver
        return Shell(
            urls={side: engine.url for side, engine in self.pair.sides.items()},
            whole_url=(self.pair.whole if at_fault is None else self.pair.whole_beside(at_fault)).url,
            asked=asked,
            before_leg=before_leg,
            on_first_token=on_first_token,
            is_callers_fault=lambda status, body: (
                ERRORS[driver.translate_error(status, body).code].fault is Fault.CALLER
            ),
        )

    async def ask(
        self,
        asked: Question,
        *,
        expected: Expected = PATIENT,
        at_fault: Side | None = None,
        before_leg: Callable[[Leg], None] = lambda _: None,
        on_first_token: Callable[[], None] = lambda: None,
    ) -> tuple[End, Shell]:
        """Hand one request over, or have it answered whole."""
        shell = self.shell(asked, at_fault=at_fault, before_leg=before_leg, on_first_token=on_first_token)
        end = await shell.run(self.playbook(expected))
        assert len(shell.sent) == len(set(shell.sent)), "no leg is sent twice"
        return end, shell

    async def whole(self, asked: Question, dead: Side | None = None) -> str:
        """What one engine says, not the dead one."""
        engine = self.pair.whole if dead is None else self.pair.whole_beside(dead)
        async with httpx.AsyncClient(timeout=ANSWER_S) as client:
            answer = await client.post(engine.url + PATH, json={**asked, **WHOLE})
        return answer.raise_for_status().json()["choices"][0]["message"]["content"]

    async def transfers(self) -> float:
        """How many hand-overs moved KV, as the engine counts them."""
        side, name = self.pair.recipe.pair.transfers_metric
        return await asyncio.to_thread(self.pair.sides[side].metric, name) or 0.0

    def held(self, side: Side) -> str:
        return self.pair.recipe.pair.held(self.pair.sides[side].url)

    async def settled(self, figure: str, *sides: Side) -> None:
        """Wait until nothing runs and no KV is held any more, and tell how long that took."""
        began_mono_s = time.monotonic()
        last = ""
        for side in sides or tuple(Side):
            while held := await asyncio.to_thread(self.held, side):
                last = f"{side} kept {held}"
                assert time.monotonic() - began_mono_s < SETTLE_S, last
                await asyncio.sleep(0.1)
        took_s = time.monotonic() - began_mono_s
        FIGURES.add(f"freed_after_{figure}_s", took_s)
        if took_s > TELLING_S:
            tell(f"{figure}: {last} for {took_s:.1f} s")
