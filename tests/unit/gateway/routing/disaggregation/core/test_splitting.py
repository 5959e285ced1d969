"""When a request is split."""

from dataclasses import replace

import pytest

from headrace.gateway.routing.disaggregation.core.splitting import (
    SplitReason,
    SplitRules,
    SplitVerdict,
    SplitWay,
    WholeWay,
    decide_split,
)

RULES = SplitRules(fewest_tokens=512, fewest_uncached_ratio=0.25, margin_s=0.02)
PAIR = SplitWay(prefill_ttft_s=1.0, transfer_s=0.2, decode_s=0.05)


def whole(ttft_s: float = 1.0, uncached_tokens: int = 4000, running_decodes: int = 0) -> WholeWay:
    return WholeWay(
        ttft_s=ttft_s, uncached_tokens=uncached_tokens, prefill_s=1.0, running_decodes=running_decodes, stall_ratio=0.5
    )


def decide(way: WholeWay, *, can_split: bool = True, split: SplitWay | None = PAIR) -> SplitVerdict:
    return decide_split(RULES, can_split=can_split, prompt_tokens=4000, whole=way, split=split)


@pytest.mark.parametrize(
    ("uncached_tokens", "reason"),
    [
        (0, SplitReason.SHORT),
        (511, SplitReason.SHORT),
        (512, SplitReason.MOSTLY_CACHED),
        (999, SplitReason.MOSTLY_CACHED),
        (1000, SplitReason.NO_GAIN),
    ],
)
def test_short_and_mostly_cached_prompts_stay_whole(uncached_tokens: int, reason: SplitReason) -> None:
    """Only what is really to be computed counts, at its bounds exactly."""
    found = decide(whole(uncached_tokens=uncached_tokens))
    assert (False, reason) == (found.is_split, found.reason)


@pytest.mark.parametrize(
    ("way", "is_split", "gain_s"),
    [
        (whole(), False, -0.25),
        (whole(running_decodes=1), True, 0.25),
        (whole(ttft_s=1.26), False, 0.01),
        (whole(ttft_s=2.0), True, 0.75),
    ],
    ids=["idle", "others wait", "within the margin", "long queue"],
)
def test_a_split_pays_for_its_transfer(way: WholeWay, is_split: bool, gain_s: float) -> None:
    """A shorter queue and less interference against the transfer: more than the margin splits."""
    found = decide(way)
    assert is_split is found.is_split
    assert found.gain_s == pytest.approx(gain_s)


def test_a_pair_that_rests_is_taken_only_for_what_is_worth_a_failure() -> None:
    """What would gain nothing anyway says so; a gain beyond the rest is taken all the same."""
    resting = replace(PAIR, rest_s=60.0)
    assert decide(whole(), split=resting).reason is SplitReason.NO_GAIN
    found = decide(whole(ttft_s=61.27), split=resting)
    assert (found.is_split, found.reason, found.gain_s) == (False, SplitReason.PAIR_RESTS, None)
    assert decide(whole(ttft_s=61.28), split=resting).is_split


def test_what_cannot_be_split_is_not() -> None:
    """A request of several choices, or without a pair that fits, stays whole and says why."""
    assert decide(whole(ttft_s=99), can_split=False).reason is SplitReason.CANNOT
    assert decide(whole(ttft_s=99), split=None).reason is SplitReason.NO_PAIR
