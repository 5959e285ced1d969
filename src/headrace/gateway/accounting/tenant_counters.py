"""What is counted by tenant: those that metrics name have their own counters, all others share one set (PAINS 14)."""

from headrace.ledger.record import RequestRecord

OTHER = "other"
"""Label of all tenants beyond the bound."""


class TenantCounts:
    """What is counted for one tenant."""

    __slots__ = ("cached_input_tokens", "cost_nanos", "ended", "gpu_s", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        """Requests by outcome."""
        self.input_tokens = 0
        self.cached_input_tokens = 0
        self.output_tokens = 0
        self.gpu_s = 0.0
        self.cost_nanos = 0

    def count_end(self, record: RequestRecord) -> None:
        """A request has ended."""
        outcome = record.outcome
        self.ended[outcome] = self.ended.get(outcome, 0) + 1
        if record.input_tokens is not None:
            self.input_tokens += record.input_tokens
        if record.cached_input_tokens is not None:
            self.cached_input_tokens += record.cached_input_tokens
        if record.output_tokens is not None:
            self.output_tokens += record.output_tokens
        if record.gpu_s is not None:
            self.gpu_s += record.gpu_s
        if record.cost_nanos is not None:
            self.cost_nanos += record.cost_nanos


class TenantCounters:
    """All of them. Series are bounded: a name has its own for as long as the process lives, so that counters do not
    fall, and no more than `most` names ever get one.
    """

    def __init__(self) -> None:
        self.other = TenantCounts()
        """Counts of a tenant that has no name here."""
        self.named: dict[str, TenantCounts] = {}
        self.currency = "USD"

    def adopt(self, tenants: tuple[str, ...], most: int, currency: str) -> None:
        """Name the first `most` of the declared tenants."""
        self.currency = currency
        for name in tenants:
            if len(self.named) >= most:
                break
            self.named.setdefault(name, TenantCounts())
