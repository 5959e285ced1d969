"""`headrace up` with a prefill and a decode pool of a real engine: callers notice nothing of it but the time."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.real.figures import FIGURES
from tests.real.installation import NotInstallableError
from tests.real.instance import RealInstance
from tests.real.pairs import check_pair_libraries
from tests.real.serving import EXACT, RealEngine

from headrace.gateway.handover.core.events import Side

pytestmark = pytest.mark.timeout(1800)

HANDED = ("headrace_handovers_total", 'end="completed"')
FITS = ("headrace_handover_pairs", 'state="fits"')
"""By what the two engines say of themselves."""
FELL_BACK = ("headrace_handovers_total", 'end="fell-back"')


def pools(engine: RealEngine) -> dict[str, dict[str, Any]]:
    """SGLang's halves answer nothing alone, so that a third pool is there for what is not split."""
    own = engine.recipe.pool(engine.python)
    found = {side.value: engine.recipe.pair.pool(side, own) for side in Side}
    for keys in found.values():
        keys["extra_args"] = [*keys.get("extra_args", own["extra_args"]), *EXACT]
    found["prefill"]["handover"] = {"min_tokens": 64, "min_gain_s": -60.0, "timeout_s": 20.0}
    if not engine.recipe.pair.answers_whole:
        found["whole"] = {"memory": found["decode"]["memory"], "extra_args": [*own["extra_args"], *EXACT]}
    return found


@pytest.fixture
def instance(real_engine: RealEngine, tmp_path: Path) -> Iterator[RealInstance]:
    """Not started yet; the suite's own engine is down meanwhile."""
    try:
        check_pair_libraries(real_engine.recipe, real_engine.python)
    except NotInstallableError as error:
        pytest.skip(str(error))
    real_engine.end()
    instance = RealInstance(tmp_path, real_engine, pools(real_engine))
    yield instance
    instance.end()


def long_question(subject: str) -> list[dict[str, str]]:
    text = f"Write about {subject}. " + f"It should be said that {subject} is known to many people. " * 20
    return [{"role": "user", "content": text}]


def text_of(instance: RealInstance, subject: str) -> str:
    answer = instance.ask(messages=long_question(subject), max_tokens=16)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def test_long_prompts_are_handed_over_and_outlive_prefill(instance: RealInstance, real_engine: RealEngine) -> None:
    """A long prompt is computed by one engine and answered by the other; with prefill killed, those that it never saw
    are answered all the same, and those that were handed over have the same text as before.
    """
    begun_mono_s = time.monotonic()
    instance.up()
    instance.wait_until_ready()
    FIGURES.add("up_pair_s", time.monotonic() - begun_mono_s)
    before = instance.metric(*HANDED)
    subjects = ("rivers", "lamps", "boats")
    texts = {subject: text_of(instance, subject) for subject in subjects}
    assert all(texts.values())
    assert instance.metric(*HANDED) - before >= 1, told(instance)
    assert instance.metric(*FITS) == 1, told(instance)
    FIGURES.add("up_pair_handed_over", instance.metric(*HANDED) - before)
    FIGURES.add("up_pair_fell_back", instance.metric(*FELL_BACK))

    cores = {pid for pid, line in instance.processes_of("prefill/0").items() if real_engine.recipe.core_name in line}
    assert cores
    for pid in cores:
        os.kill(pid, signal.SIGKILL)
    assert all(text_of(instance, subject) for subject in ("axes", "bees"))
    assert {subject: text_of(instance, subject) for subject in subjects} == texts
    FIGURES.add("up_pair_fell_back", instance.metric(*FELL_BACK))
    down = instance.run("down")
    assert down.returncode == 0, down.stderr
    assert instance.left_over() == {}


def told(instance: RealInstance) -> str:
    page = httpx.get(f"http://127.0.0.1:{instance.control_port}/metrics", timeout=30).text
    return "\n".join(line for line in page.splitlines() if line.startswith("headrace_handover"))
