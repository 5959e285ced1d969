"""Two real llama.cpp processes: a prompt computed by one is answered by the other, and faults of each step."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.fixtures.engine import RunningEngine, running_engine
from tests.harness.handover_shell import ANSWER_S, PATH, WHOLE, Shell

from headrace.engines.llamacpp.handover import LlamacppHandover
from headrace.gateway.handover.core.events import End, HandoverEnd, HandoverFailure, Leg, Side
from headrace.gateway.handover.core.playbook import Expected
from headrace.gateway.handover.core.slot_book import SlotBook
from headrace.gateway.handover.core.slot_playbook import SlotPlaybook

pytestmark = pytest.mark.engine

WORDS = LlamacppHandover()
WHOLE_SLOT = 3
"""Kept for whole requests: each request is pinned."""
BOUND_S = 60.0
"""For steps that a machine under load takes long for. None of those that fail here waits for it."""
STOPPED_S = 0.5
"""For an answer of an engine that is stopped: it does not come, however long."""


def asked(subject: str) -> dict[str, object]:
    text = f"Write about {subject}. " + f"It should be said that {subject} is known to many people. " * 6
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 16,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@dataclass(kw_only=True)
class RealPair:
    """Two processes with one folder for slots."""

    engines: dict[Side, RunningEngine]
    folder: Path
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    books: dict[Side, SlotBook] = field(default_factory=lambda: {side: SlotBook(range(2)) for side in Side})

    async def whole(self, side: Side, question: dict[str, object]) -> str:
        async with httpx.AsyncClient(timeout=ANSWER_S) as client:
            body = {**question, **WHOLE, "id_slot": WHOLE_SLOT, "cache_prompt": False}
            answer = await client.post(self.engines[side].url + PATH, json=body)
        return answer.raise_for_status().json()["choices"][0]["message"]["content"]

    async def ask(
        self,
        question: dict[str, object],
        *,
        falls_to: Side = Side.PREFILL,
        before_leg: Callable[[Leg], None] = lambda _: None,
        before_look: Callable[[], None] = lambda: None,
        due_s: dict[Leg, float] | None = None,
    ) -> tuple[End, Shell]:
        """Hand one request over."""
        shell = Shell(
            urls={side: engine.url for side, engine in self.engines.items()},
            whole_url=self.engines[falls_to].url,
            whole_fields={"id_slot": WHOLE_SLOT},
            asked=question,
            folder=self.folder,
            books=self.books,
            before_leg=before_leg,
            before_look=before_look,
            due_s=due_s or {},
        )
        slot = self.books[Side.PREFILL].try_claim()
        assert slot is not None
        expected = Expected(prefill_s=10.0, transfer_s=0.1, first_token_s=1.0, bound_s=BOUND_S)
        name = f"handover-{next(self.numbers)}.bin"
        end = await shell.run(SlotPlaybook(WORDS, expected, file_name=name, prefill_slot=slot))
        assert not (self.folder / name).exists()
        return end, shell

    def check_nothing_is_left(self) -> None:
        assert list(self.folder.iterdir()) == []
        assert {book.idle for book in self.books.values()} == {2}


@contextlib.contextmanager
def real_pair(folder: Path) -> Generator[RealPair]:
    with running_engine() as prefill, running_engine() as decode:
        for engine in (prefill, decode):
            slots = engine.log_path.parent / "slots"
            slots.rmdir()
            slots.symlink_to(folder)
        yield RealPair(engines={Side.PREFILL: prefill, Side.DECODE: decode}, folder=folder)


async def test_two_real_engines_answer_as_one(tmp_path: Path):
    """Output equals the aggregated one; the prompt is not computed again; each fault ends with the same right text."""
    with real_pair(tmp_path) as pair:
        one, two = asked("rivers"), asked("mountains")
        expected = [await pair.whole(Side.PREFILL, question) for question in (one, two)]
        found = [await pair.ask(question) for question in (one, two)]
        assert [end.how for end, _ in found] == [HandoverEnd.COMPLETED] * 2
        assert expected == [shell.text for _, shell in found]
        assert min(shell.cached_tokens for _, shell in found) > 60
        both = await asyncio.gather(pair.ask(one), pair.ask(two))
        assert [end.how for end, _ in both] == [HandoverEnd.COMPLETED] * 2
        pair.check_nothing_is_left()
        await check_faults(pair, one, expected[0])


async def check_faults(pair: RealPair, question: dict[str, object], text: str) -> None:
    """Another request takes the slot, the file is cut in half or lost, decode hangs, decode is dead."""

    def take_slot(leg: Leg) -> None:
        if leg is Leg.SAVE:
            body = {**asked("deserts"), **WHOLE, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
            slots = [{**body, "id_slot": slot} for slot in range(2)]
            for one in slots:
                httpx.post(pair.engines[Side.PREFILL].url + PATH, json=one, timeout=ANSWER_S).raise_for_status()

    def cut_file() -> None:
        file = next(pair.folder.iterdir())
        os.truncate(file, file.stat().st_size // 2)

    def lose_file(leg: Leg) -> None:
        if leg is Leg.RESTORE:
            next(pair.folder.iterdir()).unlink()

    def stop_decode(leg: Leg) -> None:
        if leg is Leg.RESTORE:
            os.kill(pair.engines[Side.DECODE].process.pid, signal.SIGSTOP)

    def kill_decode(leg: Leg) -> None:
        if leg is Leg.DECODE:
            pair.engines[Side.DECODE].process.kill()
            pair.engines[Side.DECODE].process.wait()

    end, shell = await pair.ask(question, before_look=cut_file)
    check_fell_back(pair, end, shell, HandoverFailure.FILE_TORN, text)
    assert Leg.RESTORE not in shell.sent
    cases: tuple[tuple[Callable[[Leg], None], HandoverFailure, dict[Leg, float]], ...] = (
        (take_slot, HandoverFailure.TRANSFER_SHORT, {}),
        (lose_file, HandoverFailure.TRANSFER_FAILED, {}),
        (stop_decode, HandoverFailure.TRANSFER_LATE, {Leg.RESTORE: STOPPED_S}),
        (kill_decode, HandoverFailure.DECODE_LOST, {}),
    )
    for before_leg, failure, due_s in cases:
        end, shell = await pair.ask(question, before_leg=before_leg, due_s=due_s)
        os.kill(pair.engines[Side.DECODE].process.pid, signal.SIGCONT) if before_leg is stop_decode else None
        check_fell_back(pair, end, shell, failure, text)


def check_fell_back(pair: RealPair, end: End, shell: Shell, failure: HandoverFailure, text: str) -> None:
    assert (HandoverEnd.FELL_BACK, failure) == (end.how, end.failure), shell.sent
    assert text == shell.text
    pair.check_nothing_is_left()
