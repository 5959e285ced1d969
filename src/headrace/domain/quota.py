"""What can be limited, for whom: levels, units, and the declared amounts of one level. Counterpart: docs/quotas.md."""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Level(StrEnum):
    """Who a limit belongs to, from the widest to the narrowest. The tightest wins; a refusal names it."""

    GATEWAY = "gateway"
    ORGANISATION = "organisation"
    TENANT = "tenant"
    PROJECT = "project"
    KEY = "key"


class Unit(StrEnum):
    """What a limit counts; the value is what refusals and metrics call it.

    Units: GPU time in microseconds, money in billionths of the currency, all others as named.
    """

    REQUESTS_PER_MIN = "requests_per_min"
    INPUT_TOKENS_PER_MIN = "input_tokens_per_min"
    OUTPUT_TOKENS_PER_MIN = "output_tokens_per_min"
    GPU_SECONDS_PER_MIN = "gpu_seconds_per_min"
    CONCURRENT_REQUESTS = "concurrent_requests"
    CONCURRENT_INTERACTIVE = "concurrent_interactive"
    CONCURRENT_STREAMING = "concurrent_streaming"
    CONCURRENT_OFFLINE = "concurrent_offline"
    BUDGET_PER_DAY = "budget_per_day"
    BUDGET_PER_MONTH = "budget_per_month"


BUDGETS = frozenset({Unit.BUDGET_PER_DAY, Unit.BUDGET_PER_MONTH})
SLOTS = frozenset(
    {
        Unit.CONCURRENT_REQUESTS,
        Unit.CONCURRENT_INTERACTIVE,
        Unit.CONCURRENT_STREAMING,
        Unit.CONCURRENT_OFFLINE,
    }
)
"""Units of which a request holds one while it is in work; all others are used up."""


@dataclass(frozen=True, slots=True)
class LimitId:
    """Which limit: the same in every worker and gateway that shares it."""

    level: Level
    name: str
    """Of the organisation, tenant or project (`tenant/project`), or the key's id; empty for the gateway."""
    unit: Unit


class RequestCaps(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a single request may ask for. None is no cap."""

    context_tokens: int | None = None
    """Estimated input and output limit together."""
    output_tokens: int | None = None
    """Also the limit of requests that give none."""
    body_bytes: int | None = None
    choices: int | None = None
    """`n`."""
    tools: int | None = None
    images: int | None = None


NO_CAPS = RequestCaps()


class LimitSet(msgspec.Struct, frozen=True, kw_only=True):
    """All limits of one level: of an organisation, a tenant, a project or a key."""

    amounts: dict[Unit, int] = {}
    """Units without an entry are not limited. In the unit's own measure: microseconds, billionths."""
    caps: RequestCaps = NO_CAPS

    @property
    def is_empty(self) -> bool:
        return not self.amounts and self.caps == NO_CAPS


NO_LIMITS = LimitSet()
NANOS = 1_000_000_000
"""Billionths of the currency in one unit of it."""
MICROSECONDS = 1_000_000
"""In one second of GPU time. So fine, since a short request takes less than a millisecond of a GPU."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows to have been spent of one budget in one calendar period."""

    level: Level
    name: str
    """As in LimitId."""
    unit: Unit
    nanos: int
    period_start_at: float
    """UTC epoch seconds."""
