"""Names that older versions of the engines had lead to those of today."""

from pathlib import Path

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.metrics import version_key
from headrace.engines.names import Change, NameKind, OldName, explain, find_old_name, iter_old_names
from headrace.engines.registry import driver_for

CAPTURES = Path(__file__).parents[2] / "captures"
ROWS = list(iter_old_names())

FLAG_FILES = {
    EngineKind.VLLM: "vllm/serve_flags.txt",
    EngineKind.SGLANG: "sglang/launch_server_flags.txt",
    EngineKind.TENSORRT_LLM: "tensorrt_llm/serve_flags.txt",
    EngineKind.LLAMACPP: "llamacpp/llama_server_flags.txt",
}
METRIC_FILES = {EngineKind.VLLM: "vllm/metric_names.txt", EngineKind.SGLANG: "sglang/metric_names.txt"}

NOT_ON_CAPTURED_PAGES = {
    "vllm:kv_offload_store_time_total",
    "sglang:forward_execution_seconds_total",
    "sglang:cache_hit_rate",
}
"""Read in the sources alone, or of another engine than the row."""


def listed(name: str) -> set[str]:
    lines = (CAPTURES / name).read_text().splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def test_there_are_enough_of_them() -> None:
    """At least sixty names across the four engines, none twice."""
    assert len(ROWS) >= 60
    assert {row.engine for row in ROWS} == set(FLAG_FILES)
    assert len({(row.engine, row.old) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.engine}:{row.old}")
def test_a_row_leads_to_a_name_that_is_installed(row: OldName) -> None:
    """What takes the old name's place exists in the version that was read last, and the row says where to look."""
    assert row.source
    assert bool(row.now) or row.change is Change.REMOVED
    if row.kind is NameKind.FLAG:
        assert set(row.now) <= listed(FLAG_FILES[row.engine])
    if row.kind is NameKind.METRIC:
        table = driver_for(row.engine).metrics
        assert table is not None
        known = {name for metric in table.metrics for name in metric.names}
        if row.engine in METRIC_FILES:
            known |= listed(METRIC_FILES[row.engine])
        assert set(row.now) - NOT_ON_CAPTURED_PAGES <= known


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind is NameKind.FLAG], ids=lambda row: f"{row.engine}:{row.old}"
)
def test_an_old_flag_is_not_among_those_of_today(row: OldName) -> None:
    """Except where its note says that it is deprecated and still taken."""
    if row.old in listed(FLAG_FILES[row.engine]):
        assert "still" in row.note or "deprecated" in row.note


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.engine}:{row.old}")
def test_versions_are_in_order(row: OldName) -> None:
    """A name was last seen before it was gone, but for those that are deprecated and still there."""
    last, gone = version_key(row.last), version_key(row.gone)
    if row.change is not Change.NEVER and "still" not in row.note and last and gone:
        assert last < gone


@pytest.mark.parametrize(
    ("asked", "now"),
    [
        ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("vllm_gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
        ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"),
        ("vllm:time_per_output_token_seconds_bucket", "vllm:inter_token_latency_seconds"),
        ("cache_info.cache_hit_rate", "vllm:prefix_cache_hits_total"),
        ("trtllm-build", "trtllm-serve"),
        ("--guided-decoding-backend", "--structured-outputs-config"),
        ("--guided_decoding_backend=xgrammar", "--structured-outputs-config"),
        ("--enable-dp-attention", "--attn-dp-size"),
        ("--mem-fraction", "--mem-fraction-static"),
        ("--disable-log-requests", "--enable-log-requests"),
        ("time_to_first_token_seconds", "trtllm_time_to_first_token_seconds"),
        ("sglang:num_prefill_infight_queue_reqs", "sglang:num_prefill_inflight_queue_reqs"),
    ],
)
def test_a_name_of_the_past_resolves_in_every_spelling(asked: str, now: str) -> None:
    """Underscores of collectors, suffixes of histograms and values after `=` do not matter."""
    found = find_old_name(asked)
    assert found is not None
    assert found.now[0] == now


@pytest.mark.parametrize("flag", ["--swap-space", "--num-scheduler-steps", "--use-v2-block-manager"])
def test_what_is_gone_for_good_is_said_to_be(flag: str) -> None:
    """Nothing is proposed where nothing does the work any more."""
    found = find_old_name(flag, EngineKind.VLLM)
    assert found is not None
    assert found.change is Change.REMOVED
    assert found.now == ()


def test_an_explanation_names_both_and_the_version() -> None:
    """The sentence is ready to be shown to an operator."""
    assert explain("--oltp-traces-endpoint", EngineKind.SGLANG) == (
        "--oltp-traces-endpoint was renamed to --otlp-traces-endpoint by 0.5.10"
    )
    assert explain("--swap-space") == (
        "--swap-space is gone since 0.24.0: requests are computed again instead of swapped"
    )
    assert explain("--max-model-len") is None


def test_an_engine_that_is_named_is_the_only_one_that_is_asked() -> None:
    """A flag of vLLM's past is no flag of SGLang's."""
    assert find_old_name("--swap-space", EngineKind.SGLANG) is None
    assert find_old_name("--swap-space", EngineKind.OPENAI) is None
