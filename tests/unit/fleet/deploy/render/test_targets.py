"""Every case of the goldens, for the targets of one machine: what is rendered is what was reviewed."""

import re

import pytest
import yaml
from tests.harness.render_cases import GPU_ENGINES
from tools.render_goldens import GOLDEN, SUFFIXES, iter_goldens

from headrace.fleet.deploy.render.core.model import Rendered, RenderedFile
from headrace.fleet.deploy.render.targets import Target, joined_text

LOCAL = (Target.DOCKER, Target.COMPOSE, Target.SYSTEMD)


@pytest.mark.parametrize("target", LOCAL)
def test_what_is_rendered_is_what_was_reviewed(target: Target) -> None:
    """Every engine in every shape gives the committed text byte for byte, or the committed refusal."""
    folder = GOLDEN / target.value
    wanted = {path.name: path.read_text() for path in folder.iterdir()}
    made = dict(iter_goldens(target))
    assert made == wanted, "`make goldens` writes them anew; read the diff"


@pytest.mark.parametrize("target", LOCAL)
def test_no_image_can_be_another_one_tomorrow(target: Target) -> None:
    """No golden names the tag latest, and none an image without a tag."""
    for path in (GOLDEN / target.value).iterdir():
        assert ":latest" not in path.read_text(), path.name
    for path in (GOLDEN / "compose").iterdir():
        if not path.read_text().startswith("refused"):
            services = yaml.safe_load(path.read_text())["services"].values()
            assert [one["image"] for one in services if ":" not in one["image"].rpartition("/")[2]] == []


HEALTH = {"vllm": "/health", "sglang": "/ready", "tensorrt-llm": "/health", "llamacpp": "/health"}
"""ENGINES.md section 3: what says that requests may be sent, and takes no scheduler slot."""


@pytest.mark.parametrize("target", LOCAL)
@pytest.mark.parametrize("engine", HEALTH)
def test_health_is_asked_where_the_engine_answers_it(target: Target, engine: str) -> None:
    """No engine is asked on a path that it lacks, or on one that generates a token."""
    text = (GOLDEN / target.value / f"{engine}-single.{SUFFIXES[target]}").read_text()
    plain = text.replace("\\", "")
    asked = re.findall(r'(?:127\.0\.0\.1:3000[01]|c\.request\("GET", ")(/\w+)', plain)
    gateways = set() if target is Target.SYSTEMD else {"/health"}
    assert set(asked) == {HEALTH[engine]} | gateways
    assert "health_generate" not in text


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_the_reference_case(engine: str) -> None:
    """Qwen2.5-32B on four GPUs: context, memory, port, read-only weights and grace reach all three engines."""
    flags = {
        "vllm": ["--tensor-parallel-size", "4", "--max-model-len", "32768", "--gpu-memory-utilization", "0.85"],
        "sglang": ["--tp-size", "4", "--context-length", "32768", "--mem-fraction-static", "0.8"],
        "tensorrt-llm": ["--tp_size", "4", "--max_seq_len", "32768", "--kv_cache_free_gpu_memory_fraction", "0.802"],
    }[engine]
    project = yaml.safe_load((GOLDEN / "compose" / f"{engine}-reference.yaml").read_text())
    service = project["services"]["main-0"]
    words = service["command"]
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        assert words[words.index(flag) + 1] == value
    assert words[words.index("--port") + 1] == "30000"
    assert service["stop_grace_period"] == "120s"
    assert service["volumes"][0]["read_only"] is True
    assert service["volumes"][0]["source"] == "/srv/models"
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] == ["0", "1", "2", "3"]
    script = (GOLDEN / "docker" / f"{engine}-reference.sh").read_text()
    assert "--stop-timeout 120" in script
    assert "--volume /srv/models:/models:ro" in script
    assert "TimeoutStopSec=120" in (GOLDEN / "systemd" / f"{engine}-reference.txt").read_text()


def test_several_files_are_told_apart_on_stdout() -> None:
    """Each file begins with its path; manifests are documents of one stream."""
    files = (RenderedFile(path="a", text="1\n"), RenderedFile(path="b", text="2\n"))
    rendered = Rendered(files=files, notes=())
    assert joined_text(Target.SYSTEMD, rendered) == "# ---- a\n1\n\n# ---- b\n2\n"
    assert joined_text(Target.KUBERNETES, rendered) == "1\n---\n2\n"
