"""Whether a request is split: only where what is gained is more than what moving its KV costs.

1. It cannot be split (several choices, an API without legs): whole.
2. Little of its prompt is to be computed, or little beside what is cached where it would go whole: whole.
3. gain = (whole TTFT + delay to those who generate there) - (prefill's TTFT + transfer + decode's first step).
   Above the margin: split, unless the pair rests after a failure and that is all there is to gain.
"""

from dataclasses import dataclass
from enum import StrEnum


class SplitReason(StrEnum):
    """Why it was decided so; a metric label."""

    CANNOT = "cannot"
    NO_PAIR = "no_pair"
    UNFIT = "kv_layout_mismatch"
    """Engines have room, and none of them takes another's KV."""
    SHORT = "short"
    MOSTLY_CACHED = "mostly_cached"
    NO_GAIN = "no_gain"
    PAIR_RESTS = "pair_rests"
    """The best pair has just failed to hand over, and one engine can answer alone."""
    GAIN = "gain"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """When splitting is thought of at all."""

    fewest_tokens: int = 512
    """Uncached tokens below which a prompt stays whole. Chosen."""
    fewest_uncached_ratio: float = 0.25
    """Chosen: of a prompt that is cached beyond this, decode has nearly all."""
    margin_s: float = 0.02
    """Predictions are not exact. Chosen."""
    interference_weight: float = 1.0
    """A second that others wait for their next token, in seconds of this request's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeWay:
    """The best endpoint for it as a whole."""

    ttft_s: float
    uncached_tokens: int
    prefill_s: float
    """Of its uncached tokens alone."""
    running_decodes: int
    """Requests that generate there, and wait while its prompt is computed."""
    stall_ratio: float = 1.0
    """Share of the prefill time in which they make no progress; chunked prefill brings it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWay:
    """The best pair for it."""

    prefill_ttft_s: float
    """Queue ahead, and its tokens that are not cached at prefill."""
    transfer_s: float
    """`LinkTimes.predict`: bytes over the measured rate, and the handshake."""
    decode_s: float
    """Its queue and its first step."""
    rest_s: float = 0.0
    """What a hand-over must save beyond the margin while the pair rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitVerdict:
    """The decision, with what it was made of."""

    is_split: bool
    reason: SplitReason
    gain_s: float | None = None
    """None: not looked at."""


def decide_split(
    rules: SplitRules, *, can_split: bool, prompt_tokens: int, whole: WholeWay, split: SplitWay | None
) -> SplitVerdict:
    """Decide by the numbered cases above."""
    if not can_split:
        return SplitVerdict(is_split=False, reason=SplitReason.CANNOT)
    if whole.uncached_tokens < rules.fewest_tokens:
        return SplitVerdict(is_split=False, reason=SplitReason.SHORT)
    if whole.uncached_tokens < rules.fewest_uncached_ratio * prompt_tokens:
        return SplitVerdict(is_split=False, reason=SplitReason.MOSTLY_CACHED)
    if split is None:
        return SplitVerdict(is_split=False, reason=SplitReason.NO_PAIR)
    interference_s = whole.prefill_s * whole.stall_ratio * whole.running_decodes * rules.interference_weight
    gain_s = whole.ttft_s + interference_s - (split.prefill_ttft_s + split.transfer_s + split.decode_s)
    if rules.margin_s < gain_s <= rules.margin_s + split.rest_s:
        return SplitVerdict(is_split=False, reason=SplitReason.PAIR_RESTS)
    is_split = gain_s > rules.margin_s
    return SplitVerdict(is_split=is_split, reason=SplitReason.GAIN if is_split else SplitReason.NO_GAIN, gain_s=gain_s)
