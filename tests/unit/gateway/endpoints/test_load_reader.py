"""What two readings of an engine's page say: of the prompts between them, and of the process that wrote them."""

import asyncio

import pytest
from tests.harness.handover_parts import HandoverParts, half
from tests.harness.polling import until
from tests.harness.told_engine import ToldEngine, says

from headrace.domain.endpoint import EngineKind
from headrace.engines.load import EngineLoad, read_load
from headrace.engines.metrics import Purpose
from headrace.engines.registry import driver_for
from headrace.gateway.endpoints.load_reader import LoadReader, has_begun_anew, miss_ratio


def page(queries: float | None, hits: float | None) -> EngineLoad:
    found = {Purpose.PREFIX_QUERIES: queries, Purpose.PREFIX_HITS: hits}
    values = {purpose: value for purpose, value in found.items() if value is not None}
    return EngineLoad(values=values, histograms={}, parts={}, facts={}, names={})


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        ((0, 0), (100, 0), 1.0),
        ((0, 0), (100, 100), 0.0),
        ((100, 90), (200, 115), 0.75),
        ((100, 90), (100, 90), 0.5),  # nothing was looked up: what was known stays
        ((100, 90), (10, 2), 0.5),  # the engine was restarted
        ((100, None), (200, None), 0.5),
        ((None, None), (None, None), 0.5),
    ],
)
def test_the_share_of_computed_tokens(
    before: tuple[float | None, float | None], after: tuple[float | None, float | None], ratio: float
) -> None:
    """Of the prompt tokens looked up between two readings, what was not found was computed."""
    assert miss_ratio(page(*after), page(*before), 0.5) == pytest.approx(ratio)


def test_a_first_reading_says_nothing() -> None:
    """One page alone has only totals over the engine's life."""
    assert miss_ratio(page(100, 90), None, 1.0) == 1.0


PAGE = 'vllm:prompt_tokens_total 90\nvllm:num_requests_running 5\nvllm:cache_config_info{cache_dtype="fp8"} 1\n'


@pytest.mark.parametrize(
    ("was", "now", "is_anew"),
    [
        ("", "", False),
        ("_total 90", "_total 91", False),
        ("running 5", "running 0", False),
        ("_total 90", "_total 89", True),
        ("vllm:prompt_tokens_total 90\n", "", True),  # nothing is counted yet
        ("fp8", "auto", True),
        ('vllm:cache_config_info{cache_dtype="fp8"} 1\n', "", False),
    ],
)
def test_a_page_of_another_process_is_told_by_counts_and_settings(was: str, now: str, is_anew: bool) -> None:
    """Counts of one process only rise, and its settings stay; what it runs just now may fall."""
    table = driver_for(EngineKind.VLLM).metrics
    assert table is not None
    assert has_begun_anew(read_load(PAGE.replace(was, now), table), read_load(PAGE, table), table) is is_anew


async def test_an_engine_that_was_started_anew_between_two_readings_is_noticed() -> None:
    """Read as in use: the first page says nothing, a count that fell says that another process wrote the second."""
    server = ToldEngine(says("1.0"))
    server.page = PAGE.encode()
    async with server.running() as url:
        parts = HandoverParts({"p": half("vllm", "prefill", url), "d": half("vllm", "decode", "http://127.0.0.1:9")})
        readings: list[object] = []
        reading = asyncio.create_task(LoadReader(parts.directory, lambda one, _: readings.append(one)).run())  # noqa: TID251 # of the test
        load = parts["p"].load
        await until(lambda: load.settings and readings.count(parts["p"]) > 2, what="two readings")
        assert load.restarts == 0
        server.page = PAGE.replace("90", "3").encode()
        await until(lambda: load.restarts == 1, what="a restart that is noticed")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        parts.close()
