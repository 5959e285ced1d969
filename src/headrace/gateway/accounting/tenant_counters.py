"""What is counted by tenant: those that metrics name have their own counters, all others share one set (PAINS 14)."""

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

    def count_end(
        self, outcome: str, input_tokens: int | None, cached_tokens: int | None, output_tokens: int | None
    ) -> None:
        """A request has ended: its tokens as far as known."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1
        if input_tokens is not None:
            self.input_tokens += input_tokens
        if cached_tokens is not None:
            self.cached_input_tokens += cached_tokens
        if output_tokens is not None:
            self.output_tokens += output_tokens

    def count_cost(self, gpu_s: float | None, cost_nanos: int | None) -> None:
        """What the same request cost, as far as it has a price."""
        if gpu_s is not None:
            self.gpu_s += gpu_s
        if cost_nanos is not None:
            self.cost_nanos += cost_nanos


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

    def of(self, tenant: str) -> TenantCounts:
        """The tenant's own, or those that all without a name here share."""
        return self.named.get(tenant, self.other)
