"""The contract checks against the simulated engine in every dialect, through the real driver and a real gateway."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.contract.checks import CHECKS, LIFE_CHECKS, Stand, standing
from tests.harness.simulated_engine import SimulatedProcess

from headrace.domain.endpoint import EngineKind
from headrace.engines.simulated.config import DialectKind

DIALECTS = list(DialectKind)

POOL_KEYS: dict[EngineKind, dict[str, Any]] = {EngineKind.TENSORRT_LLM: {"structured_output": {"backend": "xgrammar"}}}
"""trtllm-serve holds output to a schema only with a backend, so headrace wants to be told that there is one."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DIALECTS)
async def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    """A gateway before one simulated engine, shared by all checks of a dialect."""
    folder = tmp_path_factory.mktemp(request.param.value)
    engine = SimulatedProcess(request.param, folder)
    try:
        async with standing(engine, folder / "gateway", pool_keys=POOL_KEYS.get(engine.kind)) as made:
            yield made
    finally:
        await engine.kill()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("check", [*CHECKS, *LIFE_CHECKS])
async def test_the_simulated_engine_keeps_the_contract(stand: Stand, check: str):
    """Chat, streams, usage, cancels, schemas, overflow, start, drain and kill, as with the real engines."""
    await {**CHECKS, **LIFE_CHECKS}[check](stand)
