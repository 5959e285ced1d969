"""How requests are placed: `headrace route explain`, `headrace cache`, the control API, and between processes."""

from collections.abc import Iterable, Mapping

import msgspec


class CandidateView(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint in one decision."""

    endpoint: str
    pool: str
    outcome: str
    """picked, scored, braked (too much in flight), not-sampled or filtered."""
    reason: str = ""
    """For a person: why it was left out."""
    in_flight: int | None = None
    queued_tokens: int | None = None
    """Work queued ahead, as tokens of a short prompt."""
    cached_tokens: int | None = None
    """Of the prompt, believed to be cached there."""
    uncached_tokens: int | None = None
    speed_factor: float | None = None
    """How many times as long as the pool's mean it takes to a first token."""
    cost_s: float | None = None
    parts_s: Mapping[str, float] = {}
    """Weighted seconds by scorer; they add up to `cost_s`."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one choice among those that a name of `auto_models` stands for."""

    model: str
    outcome: str
    """picked, scored or filtered."""
    reason: str = ""
    """For a person: why it was picked, or left out."""
    endpoint: str | None = None
    """That would be picked for it."""
    quality: float | None = None
    wait_s: float | None = None
    """Expected in the gateway's queue."""
    ttft_s: float | None = None
    """Predicted, after that."""
    latency_s: float | None = None
    """Predicted from now to the last token."""
    price_nanos: int | None = None
    """Expected, billionths of the currency."""
    cached_tokens: int | None = None
    cost_s: float | None = None
    parts_s: Mapping[str, float] = {}
    """Weighted seconds of latency, price and quality; they add up to `cost_s`."""


class PairMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Prefill and decode engines that cannot take one another's KV, and so are not paired."""

    why: str
    """For a person: what differs, with both values."""
    prefills: tuple[str, ...]
    decodes: tuple[str, ...]
    """Their endpoints; of many only some are named."""
    pairs: int


class HandoverFit(msgspec.Struct, frozen=True, kw_only=True):
    """How many usable pairs of one model's prefill and decode engines go together."""

    model: str
    fits: int
    """By what both engines say of themselves."""
    unfit: int
    not_measured: int
    """As far as is known: one of the two has not said what it is."""
    mismatches: tuple[PairMismatch, ...] = ()

    @property
    def is_hopeless(self) -> bool:
        """There are pairs, and none fits."""
        return self.unfit > 0 and not self.fits and not self.not_measured


class SplitView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a request would be handed from a prefill to a decode engine."""

    is_split: bool
    reason: str
    """gain; or why it stays whole: no_gain, pair_rests, short, mostly_cached, no_pair, kv_layout_mismatch, cannot."""
    gain_s: float | None = None
    """Predicted; None: not looked at."""
    prefill: str | None = None
    decode: str | None = None
    """The best pair, taken or not."""
    prefill_s: float | None = None
    transfer_s: float | None = None
    decode_s: float | None = None
    prefill_version: str | None = None
    decode_version: str | None = None
    """Of the best pair's engines, as they say; None: not measured."""
    mismatches: tuple[PairMismatch, ...] = ()
    """Usable engines of the model that are not paired (`kv_layout_mismatch`)."""


class RouteExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What one gateway worker would do with a request now. Nothing is sent."""

    worker_pid: int
    model: str
    request_class: str
    tenant: str
    input_tokens: int
    """Estimated."""
    blocks: int
    """Of the prompt; 0 where it is too short to have any, or prompts are not looked at."""
    output_tokens: int | None
    """Expected."""
    picked: str | None
    """None: nothing can answer."""
    reason: str
    """For a person: why there was no choice, or how it was made."""
    candidates: tuple[CandidateView, ...]
    requested_model: str | None = None
    """Where that stands for several models: its name; `model` is the one that was chosen."""
    prefer: str | None = None
    models: tuple[ModelView, ...] = ()
    """Of those, in the order in which they would be tried, and then who was left out."""
    split: SplitView | None = None
    """None: the model has no prefill engines."""


class HitCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that told how much of their prompt was cached, under one name."""

    model: str
    name: str
    """Tenant, family of prompts (their first kilobyte, named by a keyed hash) or endpoint."""
    requests: int
    input_tokens: int
    cached_tokens: int
    expected_tokens: int
    """What the gateway expected to be cached."""

    @property
    def prefix_hit_ratio(self) -> float | None:
        return self.cached_tokens / self.input_tokens if self.input_tokens else None


class EndpointCache(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker believes of one endpoint's KV cache."""

    endpoint: str
    model: str
    blocks: int
    held_tokens: int
    capacity_tokens: int
    trust_ratio: float
    """Of what is expected to be cached, the share that answers confirm."""
    requests: int
    input_tokens: int
    cached_tokens: int


class RoutingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's counts since it started, or those of all added up."""

    workers: int
    tenants: tuple[HitCounts, ...]
    families: tuple[HitCounts, ...]
    endpoints: tuple[EndpointCache, ...]


def add_up(found: Iterable[RoutingStatus]) -> RoutingStatus:
    """Add the workers' counts up; of endpoints the view of the worker that believes most is kept, its hits added."""
    tenants: dict[tuple[str, str], HitCounts] = {}
    families: dict[tuple[str, str], HitCounts] = {}
    endpoints: dict[str, EndpointCache] = {}
    workers = 0
    for status in found:
        workers += status.workers
        for into, counts in ((tenants, status.tenants), (families, status.families)):
            for each in counts:
                known = into.get((each.model, each.name))
                into[each.model, each.name] = each if known is None else _sum(known, each)
        for each in status.endpoints:
            known = endpoints.get(each.endpoint)
            endpoints[each.endpoint] = each if known is None else _sum_endpoint(known, each)
    return RoutingStatus(
        workers=workers,
        tenants=tuple(sorted(tenants.values(), key=lambda each: (each.model, each.name))),
        families=tuple(sorted(families.values(), key=lambda each: -each.input_tokens)),
        endpoints=tuple(sorted(endpoints.values(), key=lambda each: each.endpoint)),
    )


def _sum(one: HitCounts, other: HitCounts) -> HitCounts:
    return HitCounts(
        model=one.model,
        name=one.name,
        requests=one.requests + other.requests,
        input_tokens=one.input_tokens + other.input_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        expected_tokens=one.expected_tokens + other.expected_tokens,
    )


def _sum_endpoint(one: EndpointCache, other: EndpointCache) -> EndpointCache:
    fuller = one if one.held_tokens >= other.held_tokens else other
    return msgspec.structs.replace(
        fuller,
        requests=one.requests + other.requests,
        input_tokens=one.input_tokens + other.input_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
    )
