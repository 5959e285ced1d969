"""A prompt that is too long for a pair of engines which hand prompts over goes to whoever has a longer context."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import DRIVERS, MODEL, SimulatedProcess, serving, simulated

from headrace.engines.simulated.config import DialectKind

ESCAPED = "漢字" * 1000
"""As JSON with escapes 8 bytes a token: the gateway learns that, and takes plain text of 4 to be half as long."""


def said(model: str, text: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, **more}


@pytest.mark.parametrize("dialect", [DialectKind.VLLM, DialectKind.SGLANG])
async def test_what_a_pair_finds_too_long_goes_to_a_longer_context(tmp_path: Path, dialect: DialectKind) -> None:
    """Of the same model, and of another that the name stands for; and the pair goes on handing over."""
    async with AsyncExitStack() as stack:
        pools: dict[str, dict[str, Any]] = {}
        for role in ("prefill", "decode"):
            engine = SimulatedProcess(dialect, tmp_path, "--role", role, "--context-tokens", "4096")
            await stack.enter_async_context(engine)
            handover = {"min_tokens": 50, "min_gain_s": -3600, "timeout_s": 2, "bootstrap_port": engine.port}
            section = {"disaggregation": {"role": role}, "handover": handover, "served_model": MODEL}
            pools[role] = remote_pool(engine.url, engine=DRIVERS[dialect].value, model="small", **section)
        service, _ = await stack.enter_async_context(serving(simulated(context_tokens=32_768)))
        big = remote_pool(f"http://127.0.0.1:{service.port}", engine="vllm", model="big", served_model=MODEL)
        auto = {"auto": {"models": {"big": {"quality": 0.5}, "small": {"quality": 0.9}}, "prefer": "best"}}
        declaration = declare(pools | {"big": big}, models={"small": {}, "big": {}}, auto_models=auto)
        async with RunningGateway(tmp_path / "state", declaration) as gateway:
            await gateway.wait_ready(endpoints=3)
            await gateway.wait_warm()
            for number in range(20):
                answer = await ask(gateway.port, post(said("small", f"{number} {ESCAPED}"), gateway.key))
                assert answer.status == 200, answer.body
            for is_stream in (False, True):
                answer = await ask(gateway.port, post(said("auto", "x" * 18_000, stream=is_stream), gateway.key))
                assert (answer.status, answer.headers.get("x-headrace-model")) == (200, "big"), answer.body
            answer = await ask(gateway.port, post(said("small", "x" * 18_000), gateway.key))
            assert (answer.status, answer.code) == (400, "context_too_long")
            answer = await ask(gateway.port, post(said("auto", "and now, " * 100), gateway.key))
            assert (answer.status, answer.headers.get("x-headrace-model")) == (200, "small")
            status = await gateway.wait_idle()
            assert {(one.state, one.failures) for one in status.endpoints} == {("ready", 0)}
            metrics = await gateway.metrics()
            assert 'headrace_failovers_total{code="context_too_long",model="small"} 2.0' in metrics
