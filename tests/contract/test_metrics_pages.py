"""Whatever the engine, its page of metrics answers the same questions with the same numbers."""

import pytest
from tests.harness.simulated_engine import DRIVERS, MODEL, serving, simulated

from headrace.engines.load import EngineLoad, read_load
from headrace.engines.load import iter_names as names_of
from headrace.engines.metrics import MetricTable, Purpose
from headrace.engines.registry import driver_for
from headrace.engines.simulated.config import DialectKind
from headrace.engines.verification import Look, State, verify

DIALECTS = [kind for kind in DialectKind if kind is not DialectKind.TRITON]
"""Triton's page is that of its own server, which no driver reads."""

OUTPUT_TOKENS = 7
REQUESTS = 3


def table_of(dialect: DialectKind) -> MetricTable:
    table = driver_for(DRIVERS[dialect]).metrics
    assert table is not None
    return table


async def page_after_requests(dialect: DialectKind) -> str:
    """What the engine shows after three equal chats."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Say the same thing again, please, for the cache."}],
        "max_tokens": OUTPUT_TOKENS,
        "ignore_eos": True,
    }
    async with serving(simulated(dialect)) as (_, client):
        for _ in range(REQUESTS):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
        page = await client.get(table_of(dialect).path)
        assert page.status_code == 200
        return page.text


async def load_after_requests(dialect: DialectKind) -> EngineLoad:
    return read_load(await page_after_requests(dialect), table_of(dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_page_is_verified_like_the_real_one(dialect: DialectKind) -> None:
    """A simulated engine shows what its model of a real one would: nothing missing, nothing renamed."""
    page = await page_after_requests(dialect)
    result = verify(
        DRIVERS[dialect],
        emitted=(),
        table=table_of(dialect),
        flags=None,
        metrics=Look(metric_names=tuple(names_of(page)), origin="test"),
    )
    assert [finding for finding in result.metrics if finding.state in (State.MISSING, State.RENAMED)] == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_requests_are_the_same_load_on_every_engine(dialect: DialectKind) -> None:
    """Tokens in count cached ones, tokens out are those that were generated, and nothing runs or waits afterwards."""
    load = await load_after_requests(dialect)
    assert (load.running, load.waiting) == (0, 0)
    assert load.values[Purpose.TOKENS_OUT] == REQUESTS * OUTPUT_TOKENS
    prompt = load.values[Purpose.TOKENS_IN]
    assert prompt > 0
    assert prompt % REQUESTS == 0
    assert load.prefix_hit_ratio is not None
    assert 0 <= load.prefix_hit_ratio < 1
    assert (load.malformed, load.not_numbers) == (0, 0)


@pytest.mark.parametrize("dialect", [kind for kind in DIALECTS if kind is not DialectKind.LLAMACPP])
async def test_times_are_read_in_seconds(dialect: DialectKind) -> None:
    """Each request has a time to first token that is shorter than the whole, in the same unit on every engine."""
    load = await load_after_requests(dialect)
    first, whole = load.histograms[Purpose.TTFT], load.histograms[Purpose.E2E]
    assert first.count == whole.count == REQUESTS
    assert first.mean is not None
    assert whole.mean is not None
    assert 0 < first.mean < whole.mean < 20
