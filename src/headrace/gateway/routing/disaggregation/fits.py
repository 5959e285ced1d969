"""Which prefill and decode engines of a model can take one another's KV: by what pools declare and engines tell.

Judged once for each two kinds of engine, so that a request asks a table. Counterparts: `engines/kv_shape.py`, which
judges; `gateway/endpoints/self_report.py`, which asks engines what they are.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from headrace.domain.errors import ErrorCode
from headrace.domain.routing_status import HandoverFit
from headrace.engines.kv_shape import KnownShape, KvShape, find_known_mismatch
from headrace.engines.pairs import fit_of
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.seat import Seat

log = structlog.get_logger("headrace.gateway")
MOST_KINDS = 256
"""Kinds of engine that are remembered; engines that say something else each time are forgotten with all others."""


class FitMeters(Protocol):
    """Gauges of one model."""

    pairs: dict[str, int]
    """Usable pairs by `fits`, `kv_layout_mismatch` and `not_measured` (they fit as far as is known)."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an endpoint was when it was last looked at."""

    declared: KvShape
    told: KvShape | None
    number: int


class Fits:
    """Concurrency: event loop only."""

    def __init__(self) -> None:
        self._kinds: dict[Endpoint, _Kind] = {}
        self._numbers: dict[KnownShape, int] = {}
        self._whys: dict[tuple[int, int], str | None] = {}
        self._seen: list[tuple[Endpoint, int, bool]] = []
        self.models: dict[str, HandoverFit] = {}
        """As of the last review."""

    def why_apart(self, giver: Endpoint, taker: Endpoint) -> str | None:
        """Return why `taker` cannot have what `giver` computes; None: nothing is known that speaks against it."""
        if giver is taker:
            return "it is the same engine"
        key = self._kind(giver), self._kind(taker)
        if key not in self._whys:
            self._whys[key] = _judge(giver, taker)
        return self._whys[key]

    def why_all_apart(self, givers: Iterable[Endpoint], takers: Sequence[Endpoint]) -> str | None:
        """Return what keeps all of them apart, by the first two; None: some go together, or there are no two."""
        found = None
        for giver in givers:
            for taker in takers:
                if giver is taker:
                    continue
                why = self.why_apart(giver, taker)
                if why is None:
                    return None
                found = found or f"{giver.endpoint_id} and {taker.endpoint_id}: {why}"
        return found

    def review(self, endpoints: Iterable[Endpoint], meters_of: Callable[[str], FitMeters]) -> None:
        """Follow the endpoints: count pairs, and tell of those that do not fit, or fit again. Cheap without news."""
        now = [(one, self._kind(one), one.is_usable) for one in endpoints if _is_half(one)]
        if now == self._seen:
            return
        self._seen = now
        self._kinds = {one: self._kinds[one] for one, _, _ in now}
        by_model: dict[str, list[Endpoint]] = {}
        for one, _, is_usable in now:
            by_model.setdefault(one.plan.model, []).extend([one] if is_usable else ())
        found = {model: _review(model, halves) for model, halves in by_model.items()}
        for model, fit in found.items():
            meters_of(model).pairs = {
                "fits": fit.fits,
                ErrorCode.KV_LAYOUT_MISMATCH.value: fit.unfit,
                "not_measured": fit.not_measured,
            }
            _tell(self.models.get(model), fit)
        self.models = found

    def _kind(self, endpoint: Endpoint) -> int:
        seat, told = _seat(endpoint), endpoint.told_shape
        assert seat.shape is not None
        known = self._kinds.get(endpoint)
        if known is not None and known.declared is seat.shape and known.told is told:
            return known.number
        if len(self._numbers) >= MOST_KINDS:
            self._kinds, self._numbers, self._whys = {}, {}, {}
        number = self._numbers.setdefault(KnownShape(declared=seat.shape, told=told), len(self._numbers))
        self._kinds[endpoint] = _Kind(seat.shape, told, number)
        return number


def _judge(giver: Endpoint, taker: Endpoint) -> str | None:
    words = _seat(giver).words
    assert words is not None
    return find_known_mismatch(_known(giver), _known(taker), words.fit_rules)


def _known(endpoint: Endpoint) -> KnownShape:
    shape = _seat(endpoint).shape
    assert shape is not None
    return KnownShape(declared=shape, told=endpoint.told_shape)


def _seat(endpoint: Endpoint) -> Seat:
    assert endpoint.seat is not None
    return endpoint.seat


def _is_half(endpoint: Endpoint) -> bool:
    return endpoint.seat is not None and endpoint.seat.words is not None


def _review(model: str, halves: Sequence[Endpoint]) -> HandoverFit:
    givers = {str(one.endpoint_id): _known(one) for one in halves if _seat(one).can_prefill}
    takers = {str(one.endpoint_id): _known(one) for one in halves if _seat(one).can_decode}
    return fit_of(model, givers, takers)


def _tell(before: HandoverFit | None, now: HandoverFit) -> None:
    """Each mismatch once, when it comes and when it goes; and when nothing is left that fits."""
    code = ErrorCode.KV_LAYOUT_MISMATCH.value
    old = {} if before is None else {each.why: each for each in before.mismatches}
    for each in now.mismatches:
        if each.why not in old:
            log.warning(
                "prefill and decode engines do not fit and are not paired",
                code=code,
                model=now.model,
                why=each.why,
                prefill=", ".join(each.prefills),
                decode=", ".join(each.decodes),
            )
    for why in old.keys() - {each.why for each in now.mismatches}:
        log.info("no engines are kept apart for this reason any more", code=code, model=now.model, why=why)
    if now.is_hopeless and not (before is not None and before.is_hopeless):
        log.error(
            "no prefill engine fits any decode engine: nothing is handed over, and requests run whole where they can",
            code=code,
            model=now.model,
            pairs=now.unfit,
        )
