"""What headrace passes and reads is held against what an engine shows."""

from pathlib import Path

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import EmittedFlag
from headrace.engines.metrics import MetricTable, Purpose
from headrace.engines.registry import driver_for
from headrace.engines.verification import HelpFacts, Look, State, Verification, verify

CAPTURES = Path(__file__).parents[3] / "captures"


def emitted(*flags: str) -> tuple[EmittedFlag, ...]:
    return tuple(EmittedFlag(flag=flag, option="models.context_tokens", source="test") for flag in flags)


def help_with(*flags: str, deprecated: tuple[str, ...] = ()) -> Look:
    return Look(help=HelpFacts(flags=frozenset(flags), deprecated=frozenset(deprecated)), origin="test")


def table_of(engine: EngineKind) -> MetricTable:
    table = driver_for(engine).metrics
    assert table is not None
    return table


def verified(engine: EngineKind, *names: str, version: str | None = None, wanted: str | None = None) -> Verification:
    metrics = Look(metric_names=names, version=version, origin="test")
    return verify(engine, emitted=(), table=table_of(engine), flags=None, metrics=metrics, wanted_version=wanted)


def captured(name: str) -> tuple[list[str], list[str]]:
    """Names of a captured list: before and after its line "with a feature"."""
    plain, _, featured = (CAPTURES / name).read_text().partition("# with a feature")
    first, second = (
        [line.split()[0] for line in text.splitlines() if line and not line.startswith("#")]
        for text in (plain, featured)
    )
    return first, second


@pytest.mark.parametrize(
    ("flag", "state", "nearest"),
    [
        ("--max-model-len", State.PRESENT, None),
        ("--grpc-mode", State.DEPRECATED, None),
        ("--max-model-length", State.RENAMED, "--max-model-len"),
        ("--served_model_name", State.RENAMED, "--served-model-name"),
        ("--speculative-decoding", State.MISSING, None),
    ],
)
def test_a_flag_is_there_renamed_or_missing(flag: str, state: State, nearest: str | None) -> None:
    """A missing flag comes with the nearest name that the engine has."""
    shown = help_with("--max-model-len", "--grpc-mode", "--served-model-name", deprecated=("--grpc-mode",))
    result = verify(EngineKind.VLLM, emitted=emitted(flag), table=None, flags=shown, metrics=None)
    (finding,) = result.flags
    assert (finding.state, finding.nearest) == (state, nearest)
    assert result.differences == (state in (State.RENAMED, State.MISSING))


def test_a_flag_of_the_past_is_explained() -> None:
    """What became of it is said, beside the nearest name."""
    result = verify(
        EngineKind.VLLM,
        emitted=emitted("--swap-space"),
        table=None,
        flags=help_with("--max-model-len"),
        metrics=None,
    )
    assert "gone since 0.24.0" in result.flags[0].note


@pytest.mark.parametrize(
    ("engine", "name"), [(EngineKind.VLLM, "vllm/metric_names.txt"), (EngineKind.SGLANG, "sglang/metric_names.txt")]
)
def test_the_page_of_the_real_engine_has_what_is_read_from_it(engine: EngineKind, name: str) -> None:
    """vLLM 0.32.0 and SGLang 0.5.23 show no difference, with a feature on or not."""
    plain, featured = captured(name)
    for names in (plain, plain + featured):
        result = verified(engine, *names)
        assert [finding.name for finding in result.metrics if finding.state in (State.RENAMED, State.MISSING)] == []
        assert result.differences == 0
    assert {finding.state for finding in verified(engine, *plain).metrics} == {State.PRESENT, State.NOT_YET}


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (EngineKind.VLLM, "vllm/serve_flags.txt"),
        (EngineKind.SGLANG, "sglang/launch_server_flags.txt"),
        (EngineKind.TENSORRT_LLM, "tensorrt_llm/serve_flags.txt"),
        (EngineKind.LLAMACPP, "llamacpp/llama_server_flags.txt"),
    ],
)
def test_every_flag_that_a_driver_passes_exists(engine: EngineKind, name: str) -> None:
    """No engine is started with a flag that the version that was read does not have."""
    lines = (CAPTURES / name).read_text().splitlines()
    shown = help_with(*(line for line in lines if line.startswith("-")))
    flags = driver_for(engine).emitted_flags
    assert flags
    result = verify(engine, emitted=flags, table=None, flags=shown, metrics=None)
    assert [finding for finding in result.flags if finding.state is not State.PRESENT] == []


def test_an_older_name_that_is_read_as_well_is_no_difference() -> None:
    """vLLM 0.6 is verified with its own names, and it is said what they are today."""
    old = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc"]
    result = verified(EngineKind.VLLM, *old, version="0.6.6")
    (kv,) = [finding for finding in result.metrics if finding.purpose is Purpose.KV_UTILIZATION]
    assert kv.state is State.OLDER
    assert "renamed to vllm:kv_cache_usage_perc" in kv.note


@pytest.mark.parametrize("version", ["simulated", "main", "", None])
def test_a_version_that_is_no_number_is_taken_for_the_newest(version: str | None) -> None:
    """Names that are gone for long are not looked for where the version cannot be compared."""
    plain, _ = captured("vllm/metric_names.txt")
    assert verified(EngineKind.VLLM, *plain, version=version).differences == 0


def test_what_appears_only_after_requests_is_no_difference() -> None:
    """A TensorRT-LLM that has answered nothing yet has an empty page."""
    result = verified(EngineKind.TENSORRT_LLM, "python_gc_objects_collected_total")
    assert {finding.state for finding in result.metrics} <= {State.NOT_YET, State.MISSING}
    (ttft,) = [finding for finding in result.metrics if finding.purpose is Purpose.TTFT]
    assert (ttft.state, ttft.note) == (State.NOT_YET, "appears after the first request")


def test_a_metric_that_was_renamed_is_found_by_its_spelling() -> None:
    """A future name near to the one that is read is proposed."""
    plain, _ = captured("vllm/metric_names.txt")
    names = ["vllm:num_requests_running_now" if name == "vllm:num_requests_running" else name for name in plain]
    result = verified(EngineKind.VLLM, *names)
    (finding,) = [finding for finding in result.metrics if finding.purpose is Purpose.RUNNING]
    assert (finding.state, finding.nearest) == (State.RENAMED, "vllm:num_requests_running_now")
    assert result.differences == 1


@pytest.mark.parametrize(
    ("wanted", "version", "is_other"),
    [("0.32", "0.32.0+cpu", False), ("0.32.0", "0.32.0", False), ("0.3", "0.32.0", True), ("0.33.0", "0.32.0", True)],
)
def test_another_version_than_the_one_that_was_asked_for_is_a_difference(
    wanted: str, version: str, *, is_other: bool
) -> None:
    """--version 0.32 is met by 0.32.0, not by 0.33.0."""
    plain, _ = captured("vllm/metric_names.txt")
    result = verified(EngineKind.VLLM, *plain, version=version, wanted=wanted)
    assert result.differences == is_other
    assert bool(result.notes) is is_other


def test_what_was_not_looked_at_is_not_verified() -> None:
    """Without a help and without a page nothing is claimed."""
    result = verify(EngineKind.VLLM, emitted=emitted("--x"), table=table_of(EngineKind.VLLM), flags=None, metrics=None)
    assert (result.flags, result.metrics, result.flags_from, result.metrics_from) == ((), (), None, None)
