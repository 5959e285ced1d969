"""Fixtures of the real engines: HEADRACE_REAL_ENGINE=vllm|sglang says which; without it only what needs none runs."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.contract.checks import Stand, standing
from tests.real.figures import FIGURES
from tests.real.installation import NotInstallableError, ensure_installed, ensure_model, tell
from tests.real.pairs import EnginePair, serving_pair
from tests.real.recipes import RECIPES
from tests.real.serving import RealEngine

KIND = os.environ.get("HEADRACE_REAL_ENGINE", "")

collect_ignore_glob = [] if KIND else ["test_*_real.py"]


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """The engine named by HEADRACE_REAL_ENGINE, installed where needed; a test that uses it starts it if it is down."""
    recipe = RECIPES[KIND]
    try:
        python, model = ensure_installed(recipe.install), ensure_model()
    except NotInstallableError as error:
        pytest.skip(str(error))
    engine = RealEngine(recipe, python, model, tmp_path_factory.mktemp("engine"))
    yield engine
    engine.end()


@pytest.fixture
def running(real_engine: RealEngine) -> RealEngine:
    """The engine, ready, with the recipe's own arguments."""
    if real_engine.extra_args and real_engine.members():
        real_engine.end()
    real_engine.extra_args = ()
    if not real_engine.members():
        real_engine.launch()
        FIGURES.add("start_s", real_engine.wait_until_ready())
    return real_engine


@pytest.fixture(scope="module")
def engine_pair(real_engine: RealEngine) -> Iterator[EnginePair]:
    """A prefill and a decode engine; the suite's own engine is down meanwhile. A test may kill and stop them."""
    real_engine.end()
    begun_mono_s = time.monotonic()
    try:
        with serving_pair(real_engine.recipe) as pair:
            FIGURES.add("pair_start_s", time.monotonic() - begun_mono_s)
            yield pair
    except NotInstallableError as error:
        pytest.skip(str(error))


@pytest.fixture
async def stand(running: RealEngine, tmp_path: Path) -> AsyncIterator[Stand]:
    """A gateway in front of the ready engine."""
    async with standing(running, tmp_path) as stand:
        yield stand


@pytest.fixture(scope="session", autouse=True)
def told_figures() -> Iterator[None]:
    """What was measured on the way is told at the end: nothing is asserted on it."""
    started_mono_s = time.monotonic()
    yield
    if KIND:
        FIGURES.add("suite_s", time.monotonic() - started_mono_s)
        tell(f"\n{KIND}: {FIGURES}")
