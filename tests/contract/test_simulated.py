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


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("how", ["fin", "rst", "error-event"])
async def test_a_cut_stream_is_never_taken_for_success(stand: Stand, how: str):
    """However an engine cuts a stream, even with an end mark, and what continues it too, the caller is told so."""
    engine = stand.engine
    assert isinstance(engine, SimulatedProcess)
    await engine.set_faults({"kind": "cut", "after_tokens": 10, "how": how, "count": 50})
    stream = await stand.stream(max_tokens=100, ignore_eos=True)
    await engine.set_faults()
    assert not stream.is_success
    assert stream.errors, stream.payloads[-3:]
    assert stream.broke is None
    assert (await stand.stream(max_tokens=5)).is_success
    assert (await stand.gateway.wait_idle()).in_flight == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_refusal_of_the_engine_is_not_the_callers_fault(stand: Stand):
    """An engine that answers 500 gives the caller a 5xx of ours, or an answer from a second try; then all is well."""
    engine = stand.engine
    assert isinstance(engine, SimulatedProcess)
    await engine.set_faults({"kind": "error", "status": 500, "count": 1})
    refused = await stand.ask(max_tokens=5)
    assert refused.status_code in (200, 502, 503), refused.text
    await engine.set_faults()
    assert (await stand.stream(max_tokens=5)).is_success
