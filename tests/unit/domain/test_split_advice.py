"""Advice on prefill and decode apart, from measured figures."""

from typing import Any

import pytest

from headrace.declaration.handover_plan import HandoverPlan
from headrace.domain.split_advice import PAIRLESS, USUAL_MIN_GAIN_S, USUAL_MIN_TOKENS, ModelAdvice, advise
from headrace.domain.split_status import LoadTotals, ModelLoad, PoolPace, SplitStatus
from headrace.gateway.routing.disaggregation.core.splitting import SplitReason


def pace(role: str, engines: int = 2, **more: Any) -> PoolPace:
    known: dict[str, Any] = {
        "prefill_tokens_per_s": 10_000.0, "prefill_from": "first tokens", "prompts": 50,
        "decode_tokens_per_s": 1_000.0, "decode_from": "answers", "answers": 50,
        "at_sequences": 40, "places": 64,
    }  # fmt: skip
    part = {} if role == "both" else {"min_tokens": 512, "min_gain_s": 0.02}
    return PoolPace(pool=role, role=role, engines=engines, usable_engines=engines, **{**known, **part, **more})


def counted(**more: Any) -> LoadTotals:
    """A hundred requests, half of them split and each of those half a second faster."""
    known: dict[str, Any] = {
        "requests": 100, "input_tokens": 200_000, "output_tokens": 10_000, "tpot_s": 2.0, "tpots": 100,
        "decisions": {"gain": 50, "short": 50}, "ended": {"completed": 50}, "handed_tokens": 150_000.0,
        "handed_bytes": 1e9, "gain_s": 25.0, "gains": 50, "split_gain_s": 25.0, "split_gains": 50,
        "stage_s": {"prefill": 10.0, "transfer": 5.0}, "stages": {"prefill": 50, "transfer": 50},
    }  # fmt: skip
    return LoadTotals(**{**known, **more})


WHOLE = {"decisions": {}, "ended": {}, "gains": 0, "split_gains": 0, "stages": {}, "stage_s": {}}


def advice(
    *pools: PoolPace, totals: LoadTotals | None = None, prefill: float = 5_000.0, output: float = 1_000.0
) -> ModelAdvice:
    load = ModelLoad(
        model="m", window_s=100.0, requests_per_s=1.0, uncached_tokens_per_s=prefill, output_tokens_per_s=output,
        handed_tokens_per_s=prefill, totals=counted() if totals is None else totals, pools=pools,
    )  # fmt: skip
    (found,) = advise(SplitStatus(workers=1, models=(load,))).models
    return found


PAIR = (pace("prefill"), pace("decode"))


def test_it_pays_where_split_requests_gain() -> None:
    """The figures are means of what was counted, and the verdict says of how many requests."""
    found = advice(*PAIR)
    assert (found.pays, found.split_ratio, found.gain_s, found.transfer_s) == (True, 0.5, 0.5, 0.1)
    assert (found.transfer_bytes_per_s, found.fallback_ratio) == (2e8, 0.0)
    assert "50 of 100 requests were split, each predicted to gain 0.5 s: 0.25 s a request" in found.verdict
    assert (found.changes, found.not_measured) == ((), ())


def test_fallbacks_cost_what_their_prompts_took() -> None:
    """Prompts that are computed twice may cost more than the others gain."""
    totals = counted(ended={"completed": 20, "fell-back": 30}, split_gain_s=5.0, fallbacks={"prefill_late": 30})
    found = advice(*PAIR, totals=totals)
    assert (found.pays, found.fallback_ratio) == (False, 0.6)
    assert "less what fallbacks cost" in found.verdict
    assert found.changes[0].startswith("let every engine answer alone: take `disaggregation` out of pools.prefill, ")
    assert "60% of the hand-overs fell back, most of them for prefill_late" in found.changes[1]


@pytest.mark.parametrize(
    ("decisions", "gains", "pays", "words"),
    [
        ({"no_gain": 80, "short": 20}, 80, False, "none was predicted to gain enough"),
        ({"short": 100}, 0, False, "too little to compute"),
        ({"no_pair": 90, "short": 10}, 0, None, "no prefill and decode engine that could work together"),
        ({"gain": 100}, 0, None, "its engines answer nothing alone"),
        ({}, 0, None, "no request was looked at"),
    ],
)
def test_whether_it_pays_is_said_with_the_reason(
    decisions: dict[str, int], gains: int, pays: bool | None, words: str
) -> None:
    """No where nothing was worth it, and nothing where there is nothing to compare with."""
    totals = counted(decisions=decisions, gains=gains, gain_s=-0.1 * gains, split_gains=0, split_gain_s=0.0)
    found = advice(*PAIR, totals=totals)
    assert (found.pays, words in found.verdict) == (pays, True)


def test_an_engine_changes_sides_where_the_busier_side_gains_by_it() -> None:
    """Both ratios come with how busy they are."""
    found = advice(pace("prefill", 3), pace("decode", 3), prefill=5_000.0, output=2_500.0)
    assert found.present is not None
    assert found.wanted is not None
    assert (found.present.prefill, found.wanted.prefill, found.wanted.decode) == (3, 1, 5)
    assert found.changes == (
        "1 prefill and 5 decode engines instead of 3 and 3: the busier side would be 50% busy instead of 83%",
    )


def test_decode_engines_that_never_had_much_to_do_are_not_asked_for() -> None:
    """What they could do at once was never measured: the ratio is shown, its doubt said, and nothing advised."""
    for idle in (pace("decode", 3, at_sequences=8), pace("decode", 3, places=None), pace("decode", 3, at_sequences=31)):
        found = advice(pace("prefill", 3), idle, prefill=5_000.0, output=2_500.0)
        assert found.wanted is not None
        assert (found.wanted.prefill, found.changes) == (1, ())
        (doubt,) = found.not_measured
        assert "fewer decode engines than said here may do" in doubt
    asked = advice(pace("prefill", 1), pace("decode", 3, at_sequences=8), prefill=9_000.0, output=100.0)
    assert asked.changes[0].startswith("3 prefill and 1 decode engines instead of 1 and 3")
    sure = advice(pace("prefill", 3), pace("decode", 3, at_sequences=32), prefill=5_000.0, output=2_500.0)
    assert len(sure.changes) == 1


def test_too_few_engines_are_said() -> None:
    """With 3 engines' work on 2, about 5 would have some time left."""
    found = advice(pace("prefill", 1), pace("decode", 1), prefill=15_000.0, output=1_500.0)
    assert found.changes == ("more engines: these are 150% busy at best; about 5 would be 70% busy",)


def test_requests_without_a_pair_are_worth_a_word() -> None:
    """From a tenth on, each with its own remedy."""
    for name in PAIRLESS:
        assert name in set(SplitReason)
        few, many = ({"gain": 100 - count, name: count} for count in (10, 11))
        assert advice(*PAIR, totals=counted(decisions=few)).changes == ()
        assert advice(*PAIR, totals=counted(decisions=many)).changes[0].startswith("11% of the requests found")


def test_what_was_not_learned_is_named() -> None:
    """No speed, no ratio; no size of the KV, no rate; few requests, little to rely on."""
    blind = pace("prefill", prefill_tokens_per_s=None), pace("decode", decode_tokens_per_s=None)
    found = advice(*blind, totals=counted(handed_bytes=0.0, requests=5))
    assert (found.present, found.wanted, found.transfer_bytes_per_s) == (None, None, None)
    for words in ("5 requests", "prefill engines compute", "decode engines generate", "kv_bytes_per_token"):
        assert any(words in line for line in found.not_measured), words
    both = advice(pace("both", min_tokens=512))
    assert any(line.startswith("a ratio: ") for line in both.not_measured)


def test_before_the_first_answer_nothing_is_measured() -> None:
    """Zeros would be read as figures."""
    found = advice(*PAIR, totals=LoadTotals())
    assert (found.pays, found.present, "nothing measured yet" in found.verdict) == (None, None, True)


def test_engines_without_roles_are_told_what_a_hand_over_may_cost() -> None:
    """A prompt of 2,000 tokens takes 0.2 s, in which 10 others wait: 2 s less what must be gained is the bound."""
    found = advice(pace("both"), totals=counted(**WHOLE))
    assert (found.has_handover, found.pays) == (False, None)
    assert found.interference_s == pytest.approx(2.0)
    assert found.verdict.endswith("splitting would pay where handing a prompt over takes less than 1.98 s")
    assert found.not_measured == ("how long handing a prompt over takes: these engines never did",)
    alone = advice(pace("both", 1), totals=counted(**WHOLE))
    assert alone.verdict.endswith("it takes a second engine")


def test_where_nobody_waits_splitting_would_not_pay() -> None:
    """Even a hand-over that took no time would gain too little."""
    found = advice(pace("both"), totals=counted(**WHOLE, tpot_s=0.001))
    assert (found.pays, "less than a hand-over must gain" in found.verdict) == (False, True)


def test_short_prompts_say_nothing_of_the_long_ones() -> None:
    """A mean hides how many are long enough."""
    found = advice(pace("both"), totals=counted(**WHOLE, input_tokens=30_000))
    assert (found.pays, "only prompts with 512 tokens" in found.verdict) == (None, True)
    assert "how many prompts are longer than the mean" in found.not_measured


def test_without_speeds_nothing_is_said_of_whole_engines() -> None:
    """What is missing is named, with what would help."""
    found = advice(pace("both", prefill_tokens_per_s=None), totals=counted(**WHOLE, tpots=0))
    assert (found.pays, found.interference_s) == (None, None)
    assert [line.split(":")[0] for line in found.not_measured] == [
        "how fast prompts are computed",
        "time per output token, and so how many generate at once",
    ]


def test_the_usual_bounds_are_those_of_the_declaration() -> None:
    """What pools without roles are told is what they would get by default."""
    plan = HandoverPlan(role="prefill")
    assert (plan.min_tokens, plan.min_gain_s) == (USUAL_MIN_TOKENS, USUAL_MIN_GAIN_S)
