"""Which pair a request is handed over between, and what is learned from how that went."""

import pytest
from tests.harness.handover_parts import HandoverParts, asked, half
from tests.harness.polling import until

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.handover.core.events import HandoverEnd, HandoverFailure
from headrace.gateway.handover.report import HandoverReport
from headrace.gateway.routing.disaggregation.handovers import LEAST_ANSWER_S, LONGEST_REST_S, UNKNOWN_SPEED_S

URLS = [f"http://127.0.0.1:{port}" for port in range(9, 20)]
"""Nobody listens there, and nothing is sent."""
GAIN_S = -30.0
"""Of pools that split also where it costs some time: whether it would is no matter of these tests."""


def pools_of(engine: str = "vllm", *, prefills: int = 2, decodes: int = 2, **handover: object) -> dict[str, object]:
    """`p0`, `p1` and `d0`, `d1`: a pool for each, so that each has a speed of its own."""
    handover = {"min_gain_s": GAIN_S, **handover}
    found = {f"p{one}": half(engine, "prefill", URLS[one], **handover) for one in range(prefills)}
    return found | {f"d{one}": half(engine, "decode", URLS[5 + one]) for one in range(decodes)}


def known(pools: dict[str, object]) -> HandoverParts:
    """Engines whose speed is known, and which are connected."""
    parts = HandoverParts(pools)
    parts.learn_speed(*pools)
    parts.connect()
    return parts


def split(parts: HandoverParts, request: InferenceRequest | None = None, whole: str = "d0") -> ChosenPair | None:
    return parts.handovers.split(request or asked(), parts[whole], parts.halves)


def names(pair: ChosenPair | None) -> tuple[str, str] | None:
    return None if pair is None else (pair.prefill.plan.name, pair.decode.plan.name)


def report(how: HandoverEnd, failure: HandoverFailure | None = None, **times_s: float) -> HandoverReport:
    return HandoverReport(
        how=how,
        failure=failure,
        prefill_s=times_s.get("prefill_s"),
        transfer_s=times_s.get("transfer_s"),
        decode_wait_s=times_s.get("decode_wait_s"),
    )


LATE = report(HandoverEnd.FELL_BACK, HandoverFailure.DECODE_LATE)
USAGE = TokenUsage(input_tokens=20_000, output_tokens=10, cached_input_tokens=20_000)
WELL = report(HandoverEnd.COMPLETED, prefill_s=2.0, transfer_s=0.001, decode_wait_s=0.1)


async def test_the_prefill_engine_that_is_done_first_computes_the_prompt() -> None:
    """What is queued there counts, and how fast it is."""
    parts = known(pools_of())
    assert names(split(parts)) == ("p0", "d0")  # ties go by name
    parts.learn_speed("p0", s_per_token=2e-4)
    assert names(split(parts)) == ("p1", "d0")
    for _ in range(2):
        queued = asked()
        parts.placer.explain(queued, (parts["p1"],))
        assert parts.placer.placed(queued, parts["p1"]) is not None
    assert names(split(parts)) == ("p0", "d0")


async def test_a_short_way_between_two_engines_is_worth_a_slower_prefill() -> None:
    """It is the whole way to the first token that counts, learned transfer times included."""
    parts = known(pools_of())
    link = parts.handovers.link("m")
    for _ in range(10):
        for giver, taker, transfer_s in (("p0", "d0", 3.0), ("p0", "d1", 3.0), ("p1", "d1", 3.0)):
            link.observe(parts[giver].endpoint_id, parts[taker].endpoint_id, size_bytes=0.0, transfer_s=transfer_s)
    parts.learn_speed("p1", s_per_token=1.2e-4)
    assert names(split(parts)) == ("p1", "d0")


@pytest.mark.parametrize("lost", ["p0", "d0"])
async def test_engines_that_are_not_usable_are_no_halves(lost: str) -> None:
    """The other ones are taken; without any, one engine answers alone."""
    parts = known(pools_of())
    parts[lost].probe_said_not_ready("gone")
    assert names(split(parts, whole="d1")) == (("p1", "d0") if lost == "p0" else ("p0", "d1"))
    for name in ("p0", "p1"):
        parts[name].probe_said_not_ready("gone")
    assert split(parts, whole="d1") is None
    assert parts.counts.decisions == {"gain": 1, "no_pair": 1}


async def test_an_engine_that_is_full_is_no_half_but_for_the_request_that_has_a_place_there() -> None:
    """Admission has claimed a place where the request was to go whole; that place is decode's."""
    parts = known(pools_of())
    parts["d0"].load.sequences_limit = parts["d1"].load.sequences_limit = 1
    parts["d0"].in_flight = parts["d1"].in_flight = 1
    assert names(split(parts, whole="d1")) == ("p0", "d1")
    parts["d1"].in_flight = 0
    assert names(split(parts, whole="p0")) == ("p0", "d1")
    parts["p0"].load.sequences_limit = 0
    assert names(split(parts, whole="d1")) == ("p1", "d1")


async def test_slots_that_hand_overs_have_leave_no_room() -> None:
    """llama.cpp: a prefill engine all of whose slots are taken computes no further prompt."""
    parts = known(pools_of("llamacpp", slots=1))
    seat = parts["p0"].seat
    assert seat is not None
    assert seat.slots is not None
    assert names(split(parts)) == ("p0", "d0")
    slot = seat.slots.try_claim()
    assert names(split(parts)) == ("p1", "d0")
    assert slot is not None
    seat.slots.free(slot)
    assert names(split(parts)) == ("p0", "d0")


async def test_engines_whose_kv_does_not_fit_are_never_a_pair() -> None:
    """Also not where they would be faster."""
    pools = pools_of()
    pools["p0"] = half("vllm", "prefill", URLS[0], min_gain_s=GAIN_S, pool={"memory": {"kv_dtype": "fp8_e4m3"}})
    parts = known(pools)
    parts.learn_speed("p1", s_per_token=3e-4)
    assert names(split(parts)) == ("p1", "d0")


async def test_a_pair_is_what_the_request_may_use() -> None:
    """Regions of its key, and what an operator's rewriting of it has words for."""
    pools = pools_of()
    for name, region in (("p0", "eu"), ("p1", "us"), ("d0", "eu"), ("d1", "us")):
        pools[name] = {**pools[name], "region": region}
    parts = known(pools)
    request = asked()
    request.regions = frozenset({"us"})
    assert names(split(parts, request, whole="d1")) == ("p1", "d1")
    request.regions = frozenset({"mars"})
    assert split(parts, request, whole="d1") is None


async def test_what_is_not_worth_it_or_cannot_be_split_stays_whole() -> None:
    """Short prompts, several choices, a request that is bound to its endpoint; each is counted by its reason."""
    parts = known(pools_of())
    assert split(parts, asked(tokens=100)) is None
    assert split(parts, asked(n=2)) is None
    pinned = asked()
    pinned.pinned_endpoint = parts["d0"].endpoint_id
    assert split(parts, pinned) is None
    dear = known(pools_of(min_gain_s=60.0))
    assert split(dear) is None
    assert parts.counts.decisions == {"short": 1, "cannot": 2}
    assert dear.counts.decisions == {"no_gain": 1}


async def test_what_is_expected_of_a_pair_allows_for_what_is_not_known() -> None:
    """A prefill engine that has shown nothing yet is given time; a whole answer three times its longest."""
    parts = HandoverParts(pools_of(prefills=1, decodes=1))
    parts.connect()
    pair = split(parts, asked(is_stream=False, max_tokens=100))
    assert pair is not None
    assert pair.prefill_s > UNKNOWN_SPEED_S
    parts.learn_speed("p0", "d0")
    later = split(parts, asked(is_stream=False, max_tokens=100))
    assert later is not None
    assert 2.0 < later.prefill_s < UNKNOWN_SPEED_S
    assert later.answer_s is not None
    assert later.answer_s > LEAST_ANSWER_S + 3 * 100 * 0.02
    unbounded = split(parts)
    assert unbounded is not None
    assert unbounded.answer_s is None


# --- what was learned


async def test_after_a_failure_other_pairs_go_first_until_it_hands_over_again() -> None:
    """A pair that failed rests; one that hands over has no rest left."""
    parts = known(pools_of())
    pair = split(parts)
    assert pair is not None
    pair.report(pair, LATE)
    other = split(parts)
    assert names(other) == ("p0", "d1")
    assert other is not None
    other.report(other, LATE)
    assert names(split(parts)) == ("p1", "d0")
    pair.report(pair, WELL)
    assert names(split(parts)) == ("p0", "d0")


async def test_where_every_pair_rests_one_engine_answers_alone_if_it_can() -> None:
    """Nobody waits for hand-overs that have just failed while there is a way that works."""
    parts = known(pools_of(prefills=1, decodes=1))
    pair = split(parts)
    assert pair is not None
    pair.report(pair, LATE)
    assert split(parts) is None
    assert parts.counts.decisions == {"gain": 1, "pair_rests": 1}
    pair.report(pair, WELL)
    assert names(split(parts)) == ("p0", "d0")


async def test_many_that_fail_at_once_are_one_failure() -> None:
    """A pair over which ten requests were under way rests no longer than after one, far from the longest rest."""
    parts = known(pools_of(prefills=1, decodes=1))
    pair = split(parts)
    assert pair is not None
    for _ in range(10):
        pair.report(pair, LATE)
    assert split(parts) is None
    await until(lambda: split(parts) is not None, LONGEST_REST_S / 2, what="the end of the rest")


async def test_halves_that_answer_nothing_alone_are_tried_also_while_they_rest() -> None:
    """SGLang's: trying beats a sure refusal."""
    parts = known(pools_of("sglang", prefills=1, decodes=1))
    pair = split(parts)
    assert pair is not None
    pair.report(pair, LATE)
    assert names(split(parts)) == ("p0", "d0")


async def test_an_engine_that_was_away_is_connected_to_nobody_and_is_forgiven() -> None:
    """The process that is back is another: its pairs are warmed up again, and what its predecessor did is over."""
    parts = known(pools_of(prefills=1, decodes=1))
    parts.handovers.sweep(parts.directory)
    assert not parts.handovers.cold_pairs("m", parts.halves)
    pair = split(parts)
    assert pair is not None
    pair.report(pair, LATE)
    parts["d0"].probe_said_not_ready("gone")
    parts["d0"].probe_said_ready(1e9)
    parts.handovers.sweep(parts.directory)
    assert [names(cold) for cold in parts.handovers.cold_pairs("m", parts.halves)] == [("p0", "d0")]
    again = split(parts)
    assert again is not None
    assert again.transfer_s > pair.transfer_s + 1


async def test_cold_pairs_are_those_that_a_warm_up_would_teach_something() -> None:
    """Usable ones that fit and do not rest, until connected and prefill's speed is known; and only where declared."""
    pools = pools_of(prefills=1)
    parts = HandoverParts(pools)
    cold = parts.handovers.cold_pairs("m", parts.halves)
    assert [names(pair) for pair in cold] == [("p0", "d0"), ("p0", "d1")]
    cold[0].report(cold[0], LATE)
    parts["d1"].probe_said_busy("full of work")
    assert [names(pair) for pair in parts.handovers.cold_pairs("m", parts.halves)] == [("p0", "d1")]
    cold[1].report(cold[1], WELL)
    assert [names(pair) for pair in parts.handovers.cold_pairs("m", parts.halves)] == [("p0", "d1")]
    parts.learn_speed("p0")
    assert not parts.handovers.cold_pairs("m", parts.halves)
    assert (parts.counts.ended, parts.counts.fallbacks) == ({}, {})  # of no caller's request
    told = HandoverParts(pools_of(prefills=1, warm_up=False))
    assert not told.handovers.cold_pairs("m", told.halves)


async def test_each_hand_over_is_counted_once_by_how_it_went() -> None:
    """Ends, reasons, tokens and stages; bytes only where their size is known."""
    parts = known(pools_of(kv_bytes_per_token=1000))
    pair = split(parts)
    assert pair is not None
    pair.report(pair, WELL)
    pair.report(pair, LATE)
    counts = parts.counts
    assert (counts.ended, counts.fallbacks) == ({"completed": 1, "fell-back": 1}, {"decode_late": 1})
    assert (counts.tokens, counts.transferred_bytes) == (pair.input_tokens, 1000 * pair.input_tokens)
    assert {name: stage.cumulative()[-1][1] for name, stage in counts.stages.items()} == dict.fromkeys(
        ("prefill_queue", "prefill", "transfer", "decode_queue"), 1
    )
    guessed = known(pools_of())
    other = split(guessed)
    assert other is not None
    other.report(other, WELL)
    assert (guessed.counts.tokens, guessed.counts.transferred_bytes) == (other.input_tokens, 0.0)


async def test_an_explanation_counts_nothing_and_says_between_whom() -> None:
    """Looking at a decision changes nothing about it."""
    parts = known(pools_of())
    found = parts.router.explain(asked()).split
    assert found is not None
    assert (found.is_split, found.reason) == (True, "gain")
    assert (found.prefill, found.decode) == (parts["p0"].endpoint_id, parts["d0"].endpoint_id)
    assert parts.counts.decisions == {}


# --- refusals, where no engine answers alone


def refused(parts: HandoverParts, request: InferenceRequest | None = None, whole: str = "d0") -> RequestError:
    with pytest.raises(RequestError) as caught:
        split(parts, request, whole)
    return caught.value


async def test_what_halves_cannot_do_is_refused_by_name() -> None:
    """The caller is told which field, or that the API has no hand-over."""
    parts = known(pools_of("sglang"))
    error = refused(parts, asked(n=2))
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, "n")
    assert "n" in error.message


async def test_halves_that_do_not_fit_are_told_apart_from_halves_that_are_away() -> None:
    """One is the operator's fault, the other passes: the caller may retry."""
    unfit = pools_of("sglang", prefills=1, decodes=1)
    unfit["p0"] = half("sglang", "prefill", URLS[0], pool={"memory": {"kv_dtype": "fp8_e4m3"}})
    assert refused(HandoverParts(unfit)).code is ErrorCode.KV_LAYOUT_MISMATCH
    away = known(pools_of("sglang"))
    for name in ("p0", "p1"):
        away[name].probe_said_not_ready("gone")
    error = refused(away)
    assert (error.code, error.retry_after_s) == (ErrorCode.DECODE_UNAVAILABLE, 1.0)
    assert "0 of 2 prefill and 2 of 2 decode" in error.message


async def test_a_short_prompt_is_split_where_no_engine_answers_alone() -> None:
    """SGLang's halves know no other way."""
    parts = known(pools_of("sglang"))
    assert names(split(parts, asked(tokens=3))) == ("p0", "d0")


async def test_decode_generates_what_arrives_and_learns_nothing_of_its_prompt() -> None:
    """Routing counts it as one that generates from the start, and as over at the end, whatever that was."""
    parts = known(pools_of())
    for is_answered in (True, False):
        request = asked()
        pair = split(parts, request)
        assert pair is not None
        arriving = parts.handovers.arriving(request, pair.decode)
        candidate = parts.placer.candidate_of(pair.decode)
        assert arriving is not None
        assert candidate is not None
        points = candidate.pool.ttft.points
        assert (candidate.running, candidate.prefill_tokens) == (1, 0.0)
        arriving.first_token(1e9)
        arriving.ended(USAGE, is_answered=is_answered)
        assert (candidate.running, candidate.in_flight, candidate.pool.ttft.points) == (0, 0, points)
