"""A prompt computed by one real engine is answered by another (vLLM: NIXL, SGLang: Mooncake over TCP): the playbooks
of `gateway/handover/core` over real sockets, and what they do when a step fails.

Each test finds both engines running and leaves nothing running or held in those that live.
"""

import asyncio
import contextlib
import dataclasses
import signal
from dataclasses import dataclass, field

import httpx
import pytest
from tests.harness.handover_shell import Shell
from tests.real.figures import FIGURES
from tests.real.handover_desk import PATIENT, Desk, question
from tests.real.pairs import EnginePair
from tests.real.serving import RealEngine

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.domain.request import ApiDialect
from headrace.engines.handover import Ticket, WholeAnswer
from headrace.engines.vllm.handover import LEASE_S, VllmHandover
from headrace.gateway.handover.core.events import End, HandoverEnd, HandoverFailure, Leg, Side
from headrace.gateway.handover.core.playbook import Expected

pytestmark = pytest.mark.timeout(1200)

TOGETHER = 6


@pytest.fixture
async def desk(engine_pair: EnginePair) -> Desk:
    """Both engines are ready, and have handed something over once: a pair's first time takes seconds."""
    FIGURES.add("pair_mended_s", await asyncio.to_thread(engine_pair.mend))
    desk = Desk(pair=engine_pair)
    end, shell = await desk.ask(question("warmth"))
    assert outcome(end) == COMPLETED, shell.answers
    await desk.settled("warm_up")
    FIGURES.add("first_handover_s", shell.first_token_s or 0.0)
    return desk


COMPLETED = (HandoverEnd.COMPLETED, None)


def outcome(end: End) -> tuple[HandoverEnd, HandoverFailure | None]:
    return end.how, end.failure


def only(kind: EngineKind, desk: Desk) -> None:
    if desk.pair.recipe.kind is not kind:
        pytest.skip(f"about {kind}")


# --- what goes well ---


async def test_a_split_answer_is_that_of_one_engine(desk: Desk) -> None:
    """Short, middle and long prompts, streamed and whole: the text is the aggregated one, and KV was moved for each."""
    before = await desk.transfers()
    asked = [
        question(f"{subject} number {sentences}", sentences, is_streamed=is_streamed)
        for sentences in (1, 12, 90)
        for subject, is_streamed in (("rivers", True), ("lamps", False))
    ]
    for one in asked:
        end, shell = await desk.ask(one)
        assert outcome(end) == COMPLETED, shell.answers
        assert await desk.whole(one) == shell.text
        name = "split_first_token_s" if shell.first_token_s is not None else "split_whole_answer_s"
        FIGURES.add(name, shell.first_token_s or shell.took_s)
    assert await desk.transfers() - before == len(asked)
    await desk.settled("answers")


async def test_split_answers_are_right_under_load(desk: Desk) -> None:
    """Several at once: wherever an engine by itself says the same alone and among others, so do the two."""
    asked = [question(f"{subject} and their uses") for subject in ("axes", "bees", "cups", "dogs", "eels", "figs")]
    assert len(asked) == TOGETHER
    split = await asyncio.gather(*(desk.ask(one) for one in asked))
    alone = [await desk.whole(one) for one in asked]
    together = await asyncio.gather(*(desk.whole(one) for one in asked))
    assert [outcome(end) for end, _ in split] == [COMPLETED] * TOGETHER
    agreeing = [index for index in range(TOGETHER) if alone[index] == together[index]]
    FIGURES.add("load_agreeing", len(agreeing))
    FIGURES.add("load_same", sum(alone[index] == split[index][1].text for index in range(TOGETHER)))
    assert [alone[index] for index in agreeing] == [split[index][1].text for index in agreeing]
    await desk.settled("load")


# --- what an engine refuses, and callers that leave ---


async def test_a_callers_mistake_is_told_to_the_caller(desk: Desk) -> None:
    """A prompt beyond the context: 400 in our words. SGLang's decode may be the first to say so: then it goes whole,
    and is refused again."""
    shell = desk.shell(question("words", 400))
    playbook = desk.playbook(PATIENT)
    with contextlib.suppress(httpx.HTTPStatusError):
        await shell.run(playbook)
    end = playbook.end
    assert end is not None
    FIGURES.add("refused_s", shell.took_s)
    FIGURES.add("refused_passed_on", end.how is HandoverEnd.PASSED_ON)
    if end.how is HandoverEnd.FELL_BACK:
        only(EngineKind.SGLANG, desk)
        assert end.failure is HandoverFailure.DECODE_REFUSED
    else:
        assert outcome(end) == (HandoverEnd.PASSED_ON, None)
    refusal = shell.answers[end.leg or Leg.DECODE]
    assert desk.pair.prefill.driver.translate_error(400, refusal).code is ErrorCode.CONTEXT_TOO_LONG
    await desk.settled("refusal")


async def test_nothing_is_kept_for_a_caller_who_left(desk: Desk) -> None:
    """Gone during the prompt, gone after the first token: no request runs on, no KV is held."""

    async def leave_during(leg: Leg | None) -> None:
        def before_leg(sent: Leg) -> None:
            if sent is leg:
                asyncio.get_running_loop().call_later(0.15, shell.leave)

        on_first_token = shell_leaves if leg is None else lambda: None
        shell = desk.shell(
            question(f"leaves of {leg}", 90, max_tokens=400), before_leg=before_leg, on_first_token=on_first_token
        )
        leaving.append(shell)
        end = await shell.run(desk.playbook(PATIENT))
        assert outcome(end) == (HandoverEnd.CALLER_LEFT, None)
        await desk.settled(f"leaving_{leg or 'answer'}")

    leaving: list[Shell] = []

    def shell_leaves() -> None:
        leaving[-1].leave()

    await leave_during(Leg.PREFILL)
    await leave_during(None)


# --- tickets (vLLM) ---


class RepeatedTicket(VllmHandover):
    """Reads each prefill answer as the one that came first: an engine, or a retry, that repeats itself."""

    def __init__(self) -> None:
        self.first: Ticket | WholeAnswer | None = None

    def read_prefill(self, body: bytes, attempt_id: str, api: ApiDialect) -> Ticket | WholeAnswer | None:
        self.first = self.first or super().read_prefill(body, attempt_id, api)
        return self.first


async def test_a_ticket_is_used_once_and_in_time(desk: Desk) -> None:
    """Spent or expired parameters never reach decode, which would answer them with 200; KV not fetched is given up."""
    only(EngineKind.VLLM, desk)
    words = RepeatedTicket()
    first, other = question("tickets", 30), question("umbrellas", 30)
    found = [await ask_with(desk, words, asked, PATIENT) for asked in (first, other)]
    assert [outcome(end) for end, _ in found] == [COMPLETED, (HandoverEnd.FELL_BACK, HandoverFailure.TICKET_SPENT)]
    assert found[1][1].sent == [Leg.PREFILL]
    assert [shell.text for _, shell in found] == [await desk.whole(asked) for asked in (first, other)]
    await desk.settled("spent")

    late = dataclasses.replace(PATIENT, transfer_s=LEASE_S + 1.0)
    end, shell = await ask_with(desk, VllmHandover(), question("the late", 30), late)
    assert outcome(end) == (HandoverEnd.FELL_BACK, HandoverFailure.TICKET_EXPIRED)
    assert shell.sent == [Leg.PREFILL]
    assert await asyncio.to_thread(desk.held, Side.PREFILL)
    await desk.settled("expired")
    assert await asyncio.to_thread(desk.pair.prefill.metric, "vllm:nixl_num_kv_expired_reqs_total")


async def ask_with(desk: Desk, words: VllmHandover, asked: dict[str, object], expected: Expected) -> tuple[End, Shell]:
    shell = desk.shell(asked)
    return await shell.run(desk.playbook(expected, words)), shell


# --- engines that hang ---


async def learned(desk: Desk) -> Expected:
    """What the gateway would expect of this pair now."""
    end, shell = await desk.ask(question("learning"))
    assert outcome(end) == COMPLETED
    first_token_s = shell.first_token_s or 0.0
    return Expected(prefill_s=first_token_s, transfer_s=0.2, first_token_s=first_token_s)


@pytest.mark.parametrize("side", Side)
async def test_a_stopped_engine_is_noticed(desk: Desk, side: Side) -> None:
    """SIGSTOP: 5 s after it was due the request goes to an engine that lives; the other leg ends, KV is free again."""
    expected = await learned(desk)
    stopped = desk.pair.sides[side]

    def stop(leg: Leg) -> None:
        if leg.side is side:
            stopped.signal_all(signal.SIGSTOP)

    asked = question(f"stops of {side}")
    try:
        end, shell = await desk.ask(asked, expected=expected, at_fault=side, before_leg=stop)
        assert end.how is HandoverEnd.FELL_BACK
        assert end.failure in (HandoverFailure.PREFILL_LATE, HandoverFailure.DECODE_LATE)
        due_s = shell.took_s - expected.bound_s
        FIGURES.add(f"{side}_stopped_noticed_s", shell.took_s)
        FIGURES.add(f"{side}_stopped_was_due_s", due_s)
        if desk.pair.recipe.kind is EngineKind.SGLANG:
            await desk.settled(f"{side}_stopped_survivor", Side.DECODE if side is Side.PREFILL else Side.PREFILL)
    finally:
        stopped.signal_all(signal.SIGCONT)
    assert await desk.whole(asked) == shell.text
    await desk.settled(f"{side}_stopped")
    end, shell = await desk.ask(question(f"goings on of {side}"))
    assert outcome(end) == COMPLETED


# --- engines that die ---


@dataclass
class Death:
    """Kills an engine when a leg is sent, some time later, or at the first token."""

    engine: RealEngine
    leg: Leg | None = None
    after_s: float = 0.0
    killed: bool = field(default=False, init=False)

    def before_leg(self, leg: Leg) -> None:
        if leg is not self.leg:
            return
        if self.after_s:
            asyncio.get_running_loop().call_later(self.after_s, self.kill)
        else:
            self.kill()

    def kill(self) -> None:
        self.engine.signal_all(signal.SIGKILL)
        self.killed = True


async def test_prefill_that_dies_over_the_prompt(desk: Desk) -> None:
    """Killed while it computes, and dead before the next request: both are answered whole, and decode holds nothing."""
    death = Death(desk.pair.prefill, Leg.PREFILL, 0.2)
    for figure, asked in (("dies", question("deaths", 100)), ("dead", question("the dead"))):
        end, shell = await desk.ask(asked, at_fault=Side.PREFILL, before_leg=death.before_leg)
        assert death.killed
        assert end.how is HandoverEnd.FELL_BACK
        assert end.failure in (HandoverFailure.PREFILL_LOST, HandoverFailure.TRANSFER_FAILED)
        FIGURES.add(f"prefill_{figure}_noticed_s", shell.took_s)
        assert await desk.whole(asked, Side.PREFILL) == shell.text
        await desk.settled(f"prefill_{figure}", Side.DECODE)
        death.after_s = 0.0


async def test_prefill_that_dies_with_the_kv(desk: Desk) -> None:
    """Killed between its answer and the transfer: decode computes the prompt itself, or the request goes whole."""
    only(EngineKind.VLLM, desk)
    death = Death(desk.pair.prefill, Leg.DECODE)
    asked = question("heirs", 30)
    expected = await learned(desk)
    death.killed = False
    end, shell = await desk.ask(asked, expected=expected, at_fault=Side.PREFILL, before_leg=death.before_leg)
    assert death.killed
    assert end.how in (HandoverEnd.COMPLETED, HandoverEnd.FELL_BACK)
    FIGURES.add("kv_dies_fell_back", end.how is HandoverEnd.FELL_BACK)
    FIGURES.add("kv_dies_ended_s", shell.took_s)
    assert await desk.whole(asked, Side.PREFILL) == shell.text
    await desk.settled("kv_dies", Side.DECODE)
    failed = await asyncio.to_thread(desk.pair.decode.metric, "vllm:nixl_num_failed_transfers_total")
    FIGURES.add("kv_dies_failed_transfers", failed or 0.0)


async def test_decode_that_dies(desk: Desk) -> None:
    """Killed when it is asked, and dead before the next request: both are answered whole, and prefill's KV is freed."""
    death = Death(desk.pair.decode, Leg.DECODE)
    for figure in ("dies", "dead"):
        asked = question(f"{figure} at decode", 30)
        end, shell = await desk.ask(asked, at_fault=Side.DECODE, before_leg=death.before_leg)
        assert death.killed
        assert outcome(end) == (HandoverEnd.FELL_BACK, HandoverFailure.DECODE_LOST)
        FIGURES.add(f"decode_{figure}_noticed_s", shell.took_s)
        assert await desk.whole(asked, Side.DECODE) == shell.text
        await desk.settled(f"decode_{figure}", Side.PREFILL)


async def test_decode_that_dies_under_its_answer(desk: Desk) -> None:
    """Killed after its first token: what came begins the right text, and the rest is any stream's affair."""
    death = Death(desk.pair.decode)
    asked = question("endings", max_tokens=200)
    end, shell = await desk.ask(asked, on_first_token=death.kill)
    assert outcome(end) == (HandoverEnd.BROKEN, HandoverFailure.DECODE_LOST)
    assert shell.text
    assert (await desk.whole(asked, Side.DECODE)).startswith(shell.text)
    await desk.settled("decode_broken", Side.PREFILL)


async def test_prefill_that_dies_under_the_answer(desk: Desk) -> None:
    """Killed after decode's first token: nobody notices."""
    death = Death(desk.pair.prefill)
    asked = question("beginnings", max_tokens=48)
    end, shell = await desk.ask(asked, on_first_token=death.kill)
    assert death.killed
    assert outcome(end) == COMPLETED
    assert await desk.whole(asked, Side.PREFILL) == shell.text
    await desk.settled("prefill_done", Side.DECODE)
