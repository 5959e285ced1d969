"""The gate: counts what is in work, per gateway and per tenant, and refuses what is over a declared limit."""

from headrace.declaration.gateway_plan import GatewayPlan
from headrace.declaration.tenancy_plan import TenantPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import TenantId
from headrace.domain.quota import Unit
from headrace.gateway.admission.core.token_bucket import TokenBucket


class TenantUse:
    """What one tenant uses now; lives on across reloads."""

    __slots__ = ("bucket", "concurrent_limit", "in_flight", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight = 0
        self.concurrent_limit: int | None = None
        self.bucket: TokenBucket | None = None

    def adopt(self, plan: TenantPlan | None, now_mono_s: float) -> None:
        amounts = plan.allowance.limits.amounts if plan else {}
        self.concurrent_limit = amounts.get(Unit.CONCURRENT_REQUESTS)
        per_min = amounts.get(Unit.REQUESTS_PER_MIN)
        if per_min is None:
            self.bucket = None
        elif self.bucket is None:
            self.bucket = TokenBucket(per_min, now_mono_s)
        else:
            self.bucket.change_limit(per_min, now_mono_s)


class Gate:
    """Admits requests. Every `admit` that returns is followed by exactly one `release`.

    Concurrency: event loop only; check and count happen in one turn, so a limit cannot be overrun by parallel callers
    (PAINS 5).
    """

    def __init__(self) -> None:
        self._tenants: dict[str, TenantUse] = {}
        self._limit = 0
        self.in_flight = 0

    def adopt(self, plan: GatewayPlan, now_mono_s: float) -> None:
        """Put a plan's limits in force; counters live on."""
        self._limit = plan.limits.in_flight
        declared = {tenant.name: tenant for tenant in plan.tenancy.tenants}
        for name in declared.keys() | self._tenants.keys():
            use = self._tenants.setdefault(name, TenantUse(name))
            use.adopt(declared.get(name), now_mono_s)

    def admit(self, tenant: TenantId, now_mono_s: float) -> TenantUse:
        """Count the request in; what is returned is for `release`.

        Raises: RequestError SATURATED or RATE_LIMITED; then nothing was counted.
        """
        if self.in_flight >= self._limit:
            message = f"the gateway has {self.in_flight} requests in work, its limit (gateway.limits.in_flight)"
            raise RequestError(ErrorCode.SATURATED, message)
        use = self._tenants.get(tenant)
        if use is None:
            use = self._tenants[tenant] = TenantUse(tenant)
        if use.concurrent_limit is not None and use.in_flight >= use.concurrent_limit:
            message = (
                f"tenant {tenant!r} has {use.in_flight} requests in work; its limit concurrent_requests is "
                f"{use.concurrent_limit}"
            )
            raise RequestError(ErrorCode.RATE_LIMITED, message, is_final=use.concurrent_limit == 0)
        if use.bucket is not None:
            wait_s = use.bucket.try_take(now_mono_s)
            if wait_s is not None:
                raise self._over_rate(tenant, wait_s)
        self.in_flight += 1
        use.in_flight += 1
        return use

    def release(self, use: TenantUse) -> None:
        """Count an admitted request out, however it ended."""
        self.in_flight -= 1
        use.in_flight -= 1

    @staticmethod
    def _over_rate(tenant: str, wait_s: float) -> RequestError:
        message = f"tenant {tenant!r} is over its limit requests_per_min"
        is_never = wait_s == float("inf")
        retry_after_s = None if is_never else wait_s
        return RequestError(ErrorCode.RATE_LIMITED, message, retry_after_s=retry_after_s, is_final=is_never)
