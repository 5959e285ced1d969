"""One answer's miss judged: what it could have found cached, what it found, and what stood between."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.cache_misses.core.compare import Difference, compare, shared_content
from headrace.cache_misses.core.fingerprint import Fingerprint
from headrace.cache_misses.core.store import Seen
from headrace.domain.miss_status import MissCause

LEAST_LOST_TOKENS = 64
LEAST_LOST_RATIO = 0.1
"""Of a prompt; less is no miss: engines cache whole blocks, compute the last token anew, and bytes only estimate
tokens. Chosen: four blocks of vLLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The prompt that was answered, and what its engine told of it."""

    prompt: Fingerprint
    input_tokens: int
    cached_tokens: int
    endpoint: str
    version: str
    outages: int
    is_first_there: bool
    """No prompt of its family was answered by this endpoint before: it could not have been cached there."""
    endpoint_has_hits: bool
    """The endpoint has found something cached at some time."""
    cache_losses: int | None = None
    """Grows with what the endpoint's engine says it has lost from its cache; None where it does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """What was lost, and why."""

    cause: MissCause
    tokens_lost: int
    family: int
    difference: Difference | None
    """None: the prompts are alike as far as they could be shared."""
    token_offset: int
    """Where sharing ended, estimated."""


def judge(answered: Answered, siblings: Sequence[Seen]) -> Miss | None:
    """Say why the answer found less cached than a sibling's prompt had left; None where it did not."""
    prompt = answered.prompt
    length = prompt.length_bytes
    if not length or not siblings:
        return None
    tokens_per_byte = answered.input_tokens / length
    least = max(LEAST_LOST_TOKENS, LEAST_LOST_RATIO * answered.input_tokens)
    cached = answered.cached_tokens
    best_prefix, closest = 0.0, siblings[0]
    best_lost, differing = 0.0, siblings[0]
    for seen in siblings:
        common = shared_content(seen.prompt, prompt)
        prefix = common.prefix_bytes * tokens_per_byte
        if prefix > best_prefix or (prefix == best_prefix and seen.endpoint == answered.endpoint != closest.endpoint):
            best_prefix, closest = prefix, seen
        whole = prefix + common.after_bytes * tokens_per_byte
        if whole > best_lost:
            best_lost, differing = whole, seen
    if best_prefix - cached >= least:
        cause = _cause_of_absence(answered, closest)
        if cause is None:
            return None
        return Miss(
            cause=cause,
            tokens_lost=round(min(best_prefix, answered.input_tokens) - cached),
            family=closest.family,
            difference=None,
            token_offset=cached,
        )
    lost = min(best_lost, answered.input_tokens) - max(cached, best_prefix)
    if lost < least:
        return None
    difference = compare(differing.prompt, prompt)
    if difference is None or difference.cause is MissCause.DIFFERENT:
        return None
    return Miss(
        cause=difference.cause,
        tokens_lost=round(lost),
        family=differing.family,
        difference=difference,
        token_offset=round(difference.shared_bytes * tokens_per_byte),
    )


def _cause_of_absence(answered: Answered, closest: Seen) -> MissCause | None:
    """The prompt was there, and its KV was not: another version, engine, a restart, no cache, or eviction."""
    if closest.version != answered.version:
        return MissCause.MODEL_VERSION
    if closest.endpoint != answered.endpoint:
        return None if answered.is_first_there else MissCause.OTHER_ENDPOINT
    if closest.outages != answered.outages:
        return MissCause.ENGINE_RESTARTED
    if answered.cache_losses is not None and closest.cache_losses is not None:  # the engine tells: no need to guess
        if answered.cache_losses != closest.cache_losses:
            return MissCause.EVICTED
        return None if answered.endpoint_has_hits else MissCause.NO_CACHE
    return MissCause.EVICTED if answered.endpoint_has_hits else MissCause.NO_CACHE
