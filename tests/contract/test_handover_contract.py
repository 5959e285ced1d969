"""Each hand-over playbook against two engines of its dialect, as processes, with every failure that they can have."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.harness.handover_shell import PATH, Shell
from tests.harness.simulated_engine import DRIVERS, MODEL, SimulatedProcess, serving, simulated

from headrace.domain.request import ApiDialect
from headrace.engines.handover import find_handover_words
from headrace.engines.llamacpp.handover import LlamacppHandover
from headrace.engines.sglang.handover import SglangHandover
from headrace.engines.simulated.config import DialectKind
from headrace.gateway.handover.core.events import End, HandoverEnd, HandoverFailure, Leg, Side
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.core.room_playbook import Meeting, RoomPlaybook
from headrace.gateway.handover.core.slot_book import SlotBook
from headrace.gateway.handover.core.slot_playbook import SlotPlaybook
from headrace.gateway.handover.core.ticket_playbook import TicketPlaybook
from headrace.gateway.handover.core.tickets import SpentTickets

ASKED = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "word " * 200}],
    "max_tokens": 6,
    "stream": True,
    "stream_options": {"include_usage": True},
}
SLOTS = 2


@dataclass(kw_only=True)
class PairUnderTest:
    """Two engines, and what the gateway would know of them."""

    dialect: DialectKind
    prefill: SimulatedProcess
    decode: SimulatedProcess
    whole_url: str
    folder: Path
    expected_text: str = ""
    spent: SpentTickets = field(default_factory=SpentTickets)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    books: dict[Side, SlotBook] = field(default_factory=lambda: {side: SlotBook(range(SLOTS)) for side in Side})

    def playbook(self, bound_s: float) -> Playbook:
        words = find_handover_words(DRIVERS[self.dialect])
        expected = Expected(prefill_s=0.1, transfer_s=0.1, first_token_s=0.1, bound_s=bound_s)
        attempt_id = f"attempt-{next(self.numbers)}"
        if isinstance(words, SglangHandover):
            meeting = Meeting(host="127.0.0.1", port=self.prefill.port, room=next(self.numbers))
            return RoomPlaybook(words, expected, attempt_id=attempt_id, meeting=meeting)
        if isinstance(words, LlamacppHandover):
            slot = self.books[Side.PREFILL].try_claim()
            assert slot is not None
            return SlotPlaybook(words, expected, file_name=f"{attempt_id}.bin", prefill_slot=slot)
        assert words is not None
        return TicketPlaybook(
            words,  # pyright: ignore[reportArgumentType] # the two that are left have tickets
            self.spent,
            expected,
            attempt_id=attempt_id,
            api=ApiDialect.CHAT_COMPLETIONS,
        )

    async def ask(
        self,
        *,
        bound_s: float = 5.0,
        before_leg: Callable[[Leg], None] = lambda _: None,
        before_look: Callable[[], None] = lambda: None,
    ) -> End:
        """Send one request; whatever happens the caller has the right text once, and nothing is left behind."""
        shell = Shell(
            urls={Side.PREFILL: self.prefill.url, Side.DECODE: self.decode.url},
            whole_url=self.whole_url,
            asked=ASKED,
            folder=self.folder,
            books=self.books if self.dialect is DialectKind.LLAMACPP else {},
            before_leg=before_leg,
            before_look=before_look,
        )
        end = await shell.run(self.playbook(bound_s))
        assert shell.text == self.expected_text, end
        assert list(self.folder.glob("*.bin")) == []
        assert {book.idle for book in self.books.values()} == {SLOTS}
        assert len(shell.sent) == len(set(shell.sent)), "no leg is sent twice"
        return end

    async def fault(self, engine: SimulatedProcess, **members: object) -> None:
        await engine.set_faults({"count": 1, **members})

    async def wait_idle(self) -> None:
        """Both engines have nothing running: no leg was left alone."""
        ends_mono_s = time.monotonic() + 20
        while await self.prefill.running_requests() or await self.decode.running_requests():
            assert time.monotonic() < ends_mono_s, "a leg is left running"
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def pair_of(dialect: DialectKind, folder: Path) -> AsyncGenerator[PairUnderTest]:
    """Two processes with their roles, and one engine here that answers whole requests."""
    slots = folder / "slots"
    slots.mkdir()
    more = ("--slot-dir", str(slots), "--max-sequences", str(SLOTS)) if dialect is DialectKind.LLAMACPP else ()
    one, two = (SimulatedProcess(dialect, folder, "--role", role, *more) for role in ("prefill", "decode"))
    await one.start()
    async with two, serving(simulated(dialect)) as (service, client):
        try:
            await one.wait_ready()
            url = f"http://127.0.0.1:{service.port}"
            pair = PairUnderTest(dialect=dialect, prefill=one, decode=two, whole_url=url, folder=slots)
            answer = await client.post(PATH, json={**ASKED, "stream": False, "stream_options": None})
            pair.expected_text = answer.json()["choices"][0]["message"]["content"]
            yield pair
        finally:
            await one.kill()


def failed(failure: HandoverFailure) -> tuple[HandoverEnd, HandoverFailure]:
    return HandoverEnd.FELL_BACK, failure


def outcome(end: End) -> tuple[HandoverEnd, HandoverFailure | None]:
    return end.how, end.failure


async def check_refusals(pair: PairUnderTest) -> None:
    await pair.fault(pair.prefill, kind="error", status=500)
    assert outcome(await pair.ask()) == failed(HandoverFailure.PREFILL_REFUSED)
    await pair.wait_idle()
    await pair.fault(pair.decode, kind="error", status=503)
    assert outcome(await pair.ask()) == failed(HandoverFailure.DECODE_REFUSED)
    await pair.wait_idle()


async def check_transfer(pair: PairUnderTest) -> None:
    """KV that is lost on the way, torn or slow."""
    if pair.dialect is DialectKind.LLAMACPP:

        def lose(leg: Leg) -> None:
            if leg is Leg.RESTORE:
                next(pair.folder.glob("*.bin")).unlink()

        def cut() -> None:
            file = next(pair.folder.glob("*.bin"))
            os.truncate(file, file.stat().st_size // 2)

        assert outcome(await pair.ask(before_leg=lose)) == failed(HandoverFailure.TRANSFER_FAILED)
        assert outcome(await pair.ask(before_look=cut)) == failed(HandoverFailure.FILE_TORN)
        return
    await pair.fault(pair.prefill, kind="kv-loss")
    assert outcome(await pair.ask())[0] is HandoverEnd.FELL_BACK
    await pair.wait_idle()
    await pair.fault(pair.decode, kind="kv-slow", stall_s=60.0)
    assert (await pair.ask(bound_s=0.5)).failure in (HandoverFailure.DECODE_LATE, HandoverFailure.PREFILL_LATE)


async def check_deaths(pair: PairUnderTest) -> None:
    """An engine that hangs, and engines that are gone."""
    assert pair.prefill.process is not None
    os.kill(pair.prefill.process.pid, signal.SIGSTOP)
    try:
        end = await pair.ask(bound_s=0.5)
    finally:
        os.kill(pair.prefill.process.pid, signal.SIGCONT)
    assert end.failure in (HandoverFailure.PREFILL_LATE, HandoverFailure.DECODE_LATE)
    await pair.decode.kill()
    assert outcome(await pair.ask()) == failed(HandoverFailure.DECODE_LOST)
    await pair.prefill.kill()
    end = await pair.ask()
    assert end.failure in (HandoverFailure.PREFILL_LOST, HandoverFailure.DECODE_LOST)


@pytest.mark.parametrize(
    "dialect", [DialectKind.VLLM, DialectKind.SGLANG, DialectKind.TENSORRT_LLM, DialectKind.LLAMACPP]
)
async def test_a_handover_ends_with_the_right_text_whatever_fails(dialect: DialectKind, tmp_path: Path):
    """Prefill and decode refuse, hang or die, KV is lost or slow: the caller has the whole answer, no leg is left."""
    async with pair_of(dialect, tmp_path) as pair:
        assert outcome(await pair.ask()) == (HandoverEnd.COMPLETED, None)
        await pair.wait_idle()
        await check_refusals(pair)
        await check_transfer(pair)
        assert outcome(await pair.ask()) == (HandoverEnd.COMPLETED, None)
        await check_deaths(pair)
