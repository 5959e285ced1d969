"""What a quota asks of one limit, whoever keeps it: this process alone, or a share leased from a coordinator or Redis.

Amounts are whole numbers: tokens, requests, milliseconds of GPU time, millionths of the currency.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Level(StrEnum):
    """Who a limit belongs to, from the widest to the narrowest. The tightest wins; a refusal names it."""

    GATEWAY = "gateway"
    ORGANISATION = "organisation"
    TENANT = "tenant"
    PROJECT = "project"
    KEY = "key"


class Unit(StrEnum):
    """What a limit counts; the value is its key in headrace.yaml."""

    REQUESTS_PER_MIN = "requests_per_min"
    INPUT_TOKENS_PER_MIN = "input_tokens_per_min"
    OUTPUT_TOKENS_PER_MIN = "output_tokens_per_min"
    GPU_MS_PER_MIN = "gpu_ms_per_min"
    CONCURRENT_REQUESTS = "concurrent_requests"
    CONCURRENT_INTERACTIVE = "concurrent_interactive"
    CONCURRENT_STREAMING = "concurrent_streaming"
    CONCURRENT_OFFLINE = "concurrent_offline"
    BUDGET_PER_DAY = "budget_per_day"
    BUDGET_PER_MONTH = "budget_per_month"


@dataclass(frozen=True, slots=True)
class LimitId:
    """Which limit: the same in every worker and gateway that shares it."""

    level: Level
    name: str
    """Of the organisation, tenant or project (`tenant/project`), or the key's id; empty for the gateway."""
    unit: Unit


class Meter(Protocol):
    """One limit and what is used of it.

    Concurrency: event loop only. `wait_s` looks and `take` counts in the same turn, so that several meters can be asked
    first and then taken together, and no parallel caller comes in between (PAINS 5).
    """

    limit_id: LimitId
    amount: int
    """The declared limit."""

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        """Seconds until `amount` could be taken; 0.0: now; infinity: never under this limit."""
        ...

    def take(self, amount: int, now_mono_s: float) -> None:
        """Count `amount`, which `wait_s` has just allowed."""
        ...

    def give_back(self, amount: int, now_mono_s: float) -> None:
        """Return what was taken and not used: all of it where the request cost nothing."""
        ...

    def charge(self, amount: int, now_mono_s: float) -> None:
        """Count what was used beyond what was taken. Never refuses: it goes into debt, and others wait."""
        ...

    def used(self, now_mono_s: float) -> int:
        """What counts against the limit now, as far as is known here."""
        ...

    def reset_s(self, now_mono_s: float) -> float:
        """Seconds until nothing would count against it, were nothing more taken."""
        ...
