"""From a replica's plan to what its driver is told."""

import stat
from pathlib import Path

import pytest

from headrace.declaration.model import Declaration
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import EngineUnavailableError, Launch
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.replica_plan import ReplicaPlan, bounds_of, computes_on_cpu, shape_of
from headrace.fleet.deploy.replica_spec import (
    check_options,
    find_weight_bytes,
    make_spec,
    require_program,
    write_launch_files,
)
from headrace.settings import Settings

GIB = 2**30


def plan_of(pool: dict[str, object], model: dict[str, object] | None = None) -> ReplicaPlan:
    models = {"m": model or {"source": "file:/m"}, "draft": {"source": "file:/d"}}
    declaration = Declaration.model_validate({"models": models, "pools": {"a/b": {"model": "m", **pool}}})
    section = declaration.pools["a/b"]
    return ReplicaPlan(pool="a/b", number=2, shape=shape_of(declaration, "a/b", 3), bounds=bounds_of(section))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")


def test_a_plan_becomes_a_spec(settings: Settings):
    """Files of a launch go into a folder of the replica's own, whatever its pool is called."""
    plan = plan_of({"engine": "vllm", "stop_s": 7, "speculative": {"method": "draft", "model": "draft"}})
    assert plan.shape.draft is not None
    spec = make_spec(plan, settings, port=7300, model_path=Path("/m"), draft_path=Path("/d"))
    assert (spec.port, spec.threads, spec.stop_s, spec.draft_path) == (7300, 3, 7, Path("/d"))
    assert spec.file_dir == settings.run_dir / "launch" / "a%2fb-2"
    assert (spec.event_port, spec.transfer_port) == (17300, 27300)


def test_only_vllm_is_restarted_for_another_bound():
    """It is told how long it may drain and load; for others these bounds are headrace's alone."""
    assert plan_of({"engine": "vllm", "stop_s": 7}).shape != plan_of({"engine": "vllm", "stop_s": 8}).shape
    assert plan_of({"engine": "vllm", "load_timeout_s": 7}).shape != plan_of({"engine": "vllm"}).shape
    assert plan_of({"engine": "sglang", "stop_s": 7}).shape == plan_of({"engine": "sglang", "stop_s": 8}).shape


def test_the_size_of_weights_is_that_of_their_files(tmp_path: Path):
    """Of a folder the safetensors, or else other forms; None where there are no weights."""
    assert find_weight_bytes(tmp_path / "nowhere") is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"12345")
    assert find_weight_bytes(tmp_path) == 5
    (tmp_path / "a.safetensors").write_bytes(b"123")
    (tmp_path / "b.safetensors").write_bytes(b"1234")
    assert find_weight_bytes(tmp_path) == 7
    assert find_weight_bytes(tmp_path / "a.safetensors") == 3


def test_what_only_the_files_tell_is_refused_at_the_start(settings: Settings, tmp_path: Path):
    """A fraction that must be converted by the weights' size is judged once they are here."""
    (tmp_path / "a.safetensors").write_bytes(b"1")
    memory = {"fraction": 0.9, "device_bytes": 8 * GIB, "working_bytes": GIB}
    plan = plan_of({"engine": "tensorrt-llm", "memory": memory})
    driver = driver_for(EngineKind.TENSORRT_LLM)
    check_options(driver, make_spec(plan, settings, port=7300, model_path=tmp_path))
    with pytest.raises(EngineUnavailableError, match=r"pools\.a/b\.memory\.of .*weight_bytes"):
        check_options(driver, make_spec(plan, settings, port=7300, model_path=tmp_path / "nowhere"))


def test_a_program_that_is_not_here_is_named_with_its_key():
    """The operator learns which key to set."""
    plan = plan_of({"engine": "vllm"})
    with pytest.raises(EngineUnavailableError, match=r"pools\.a/b\.runtime\.python"):
        require_program(plan, Launch(argv=("no-such-program",), env={}, description=""))
    require_program(plan, Launch(argv=("sh",), env={}, description=""))


def test_files_of_a_launch_are_for_this_user_alone(tmp_path: Path):
    """A chat template or a configuration may hold what others must not read."""
    path = tmp_path / "launch" / "a.yaml"
    launch = Launch(argv=("sh",), env={}, description="", files={path: "x: 1\n"})
    write_launch_files(launch)
    write_launch_files(launch)
    assert path.read_text() == "x: 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("pool", "is_on_cpu"),
    [
        ({}, True),
        ({"engine": "vllm"}, False),
        ({"engine": "vllm", "runtime": {"device": "cpu"}}, True),
    ],
)
def test_only_engines_on_the_cpu_share_the_cores(pool: dict[str, object], is_on_cpu: bool):
    """A pool on GPUs takes no core from llama.cpp."""
    document = {"models": {"m": {}}, "pools": {"p": {"model": "m", **pool}}}
    assert computes_on_cpu(Declaration.model_validate(document).pools["p"]) == is_on_cpu
