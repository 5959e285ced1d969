"""The contract checks against the simulated engine in every dialect, through the real driver and a real gateway."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.contract.checks import CHECKS, LIFE_CHECKS, Stand, standing
from tests.harness.simulated_engine import SimulatedProcess

from headrace.engines.simulated.config import DialectKind

DIALECTS = list(DialectKind)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """A gateway before one simulated engine, shared by all checks of a dialect."""
    folder = tmp_path_factory.mktemp(request.param.value)
    engine = SimulatedProcess(request.param, folder)
    try:
        async with standing(engine, folder / "gateway") as made:
            yield made
    finally:
        await engine.kill()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("check", [*CHECKS, *LIFE_CHECKS])
async def test_the_simulated_engine_keeps_the_contract(stand: Stand, check: str):
    """Chat, streams, usage, cancels, schemas, overflow, start, drain and kill, as with the real engines."""
    await {**CHECKS, **LIFE_CHECKS}[check](stand)
