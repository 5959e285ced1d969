"""Who sends what, and when: a workload as a small file, and the same arrivals from it every time."""

import heapq
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from headrace.domain.request import RequestClass


class Lengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long prompts or answers are, in tokens: even between the two."""

    least: int
    most: int


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one tenant sends: independent requests at a mean rate (a Poisson process)."""

    tenant: str
    per_s: float
    input_tokens: Lengths
    output_tokens: Lengths
    request_class: RequestClass = RequestClass.STANDARD
    weight: float = 1.0
    from_s: float = 0.0
    until_s: float | None = None
    """None: as long as the workload lasts."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole workload. Units: virtual seconds, tokens."""

    seed: int
    duration_s: float
    tenants: tuple[TenantLoad, ...]

    def only(self, *tenants: str) -> "Workload":
        """Return the same arrivals of these tenants alone."""
        return msgspec.structs.replace(self, tenants=tuple(load for load in self.tenants if load.tenant in tenants))

    def lasting(self, duration_s: float) -> "Workload":
        return msgspec.structs.replace(self, duration_s=duration_s)


class Arrival(NamedTuple):
    """One request that comes."""

    at_s: float
    load: TenantLoad
    input_tokens: int
    output_tokens: int


def read_workload(path: Path) -> Workload:
    """Read a workload's JSON file. Raises: OSError, msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Workload)


def iter_arrivals(workload: Workload) -> Iterator[Arrival]:
    """Yield all arrivals in order. Each tenant's are the same whoever else is there."""
    return heapq.merge(*(_of_tenant(workload, load) for load in workload.tenants), key=lambda arrival: arrival.at_s)


def _of_tenant(workload: Workload, load: TenantLoad) -> Iterator[Arrival]:
    chance = Random(f"{workload.seed}/{load.tenant}/{load.request_class.value}")  # noqa: S311 (not for secrets)
    until_s = workload.duration_s if load.until_s is None else min(load.until_s, workload.duration_s)
    at_s = load.from_s
    while (at_s := at_s + chance.expovariate(load.per_s)) < until_s:
        input_tokens = chance.randint(load.input_tokens.least, load.input_tokens.most)
        yield Arrival(at_s, load, input_tokens, chance.randint(load.output_tokens.least, load.output_tokens.most))
