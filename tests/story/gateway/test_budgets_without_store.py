"""A worker that has never reached the store of shared limits, and what it may give of a budget."""

from datetime import UTC, datetime
from pathlib import Path

from tests.harness.polling import until
from tests.harness.ports import free_port
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.shared_gateways import OUTPUT_TOKENS, CountingEngine

from headrace.domain.quota import Level, Spent, Unit
from headrace.domain.worker import SetSpent

COST_NANOS = OUTPUT_TOKENS * 1000
"""Of one request, by the price below."""
BUDGET_NANOS = 10 * COST_NANOS
PRICES = {"version": "v1", "models": {"m": {"input_per_million": 0.0, "output_per_million": 1.0}}}


def spent(nanos: int) -> SetSpent:
    """As the supervisor tells it."""
    today = datetime.now(tz=UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    return SetSpent(
        spent=(Spent(level=Level.TENANT, name="slim", unit=Unit.BUDGET_PER_DAY, nanos=nanos, period_start_at=today),)
    )


async def test_a_worker_without_redis_gives_its_part_of_what_the_ledger_leaves(tmp_path: Path) -> None:
    """One of two workers, Redis out of reach from the beginning: half of the budget is its part; that falls as the
    ledger tells what others have spent, and is refused as a spent budget only when all of it is.
    """
    key, record = new_key("slim")
    async with CountingEngine() as engine:
        declaration = declare(
            {"p": remote_pool(f"http://127.0.0.1:{engine.port}")},
            tenants={"slim": {"budget": {"per_day": BUDGET_NANOS / 1e9}}},
            gateway={"workers": 2, "sharing": {"redis": f"redis://127.0.0.1:{free_port()}/0"}},
            prices=PRICES,
        )
        async with RunningGateway(tmp_path / "machine", declaration, (record,)) as gateway:
            await gateway.wait_ready()

            async def is_alone() -> bool:
                return await gateway.metric("headrace_sharing_lost ") == 1.0

            await until(is_alone, what="the worker to know that Redis is away")
            body = {"model": "m", "max_tokens": OUTPUT_TOKENS, "messages": [{"role": "user", "content": "for slim"}]}

            async def answers(count: int) -> list[str | None]:
                found = [await ask(gateway.port, post(body, key)) for _ in range(count)]
                return [None if one.status == 200 else one.code for one in found]

            assert await answers(1) == [None], "its part is 5"
            await gateway.command(spent(5 * COST_NANOS))
            assert await answers(3) == [None, None, "rate_limited"], "5 are left, and its part of them is 2.5"
            await gateway.command(spent(BUDGET_NANOS))
            assert await answers(1) == ["quota_exhausted"]
        assert engine.total["slim"] == 3
