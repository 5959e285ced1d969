"""Refusals of a quota: which level, which limit, how much of it is used, and when there will be room. Pure."""

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.quota import BUDGETS, MICROSECONDS, NANOS, Level, LimitId, Unit
from headrace.gateway.admission.core.leased_meter import CONTESTED_S
from headrace.gateway.admission.core.purse import Shortage


def refusal(shortage: Shortage, now_mono_s: float, currency: str) -> RequestError:
    """The error of a request that a limit keeps out; programs find its parts as members of the error object."""
    meter = shortage.meter
    limit_id = meter.limit_id
    unit = limit_id.unit
    used, reset_s = meter.used(now_mono_s), meter.reset_s(now_mono_s)
    is_never = shortage.wait_s == float("inf")
    is_used_up = unit in BUDGETS and shortage.wait_s > CONTESTED_S  # else others hold unused what is needed
    text = f"{owner_text(limit_id)} is over its limit {unit.value}: " + (
        f"a request like this needs {shown(unit, shortage.amount, currency)}, the limit is "
        f"{shown(unit, meter.amount, currency)}"
        if is_never
        else f"{shown(unit, used, currency)} of {shown(unit, meter.amount, currency)} used, this request needs "
        f"{shown(unit, shortage.amount, currency)}"
    )
    if not is_never:
        text += f"; room in {shortage.wait_s:.0f} s" if shortage.wait_s >= 1 else "; room in a moment"
    return RequestError(
        ErrorCode.QUOTA_EXHAUSTED if is_used_up else ErrorCode.RATE_LIMITED,
        text,
        retry_after_s=None if is_never else shortage.wait_s,
        is_final=is_never or is_used_up,
        figures={
            "level": limit_id.level.value,
            "name": limit_id.name,
            "limit": unit.value,
            "limit_amount": natural(unit, meter.amount),
            "used": natural(unit, used),
            "needed": natural(unit, shortage.amount),
            "reset_s": round(reset_s, 1),
        },
    )


def owner_text(limit_id: LimitId) -> str:
    """Whose limit it is, for people."""
    return "the gateway" if limit_id.level is Level.GATEWAY else f"{limit_id.level.value} {limit_id.name!r}"


def natural(unit: Unit, amount: int) -> int | float:
    """An amount in the measure that people use: seconds of GPU time, units of the currency."""
    if unit is Unit.GPU_SECONDS_PER_MIN:
        return amount / MICROSECONDS
    return amount / NANOS if unit in BUDGETS else amount


def shown(unit: Unit, amount: int, currency: str) -> str:
    """An amount with its unit."""
    if unit is Unit.GPU_SECONDS_PER_MIN:
        return f"{amount / MICROSECONDS:.3g} s"
    return f"{amount / NANOS:.6g} {currency}" if unit in BUDGETS else f"{amount}"
