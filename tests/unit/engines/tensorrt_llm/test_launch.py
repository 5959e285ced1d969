"""What a declared option becomes on trtllm-serve's command line and in its YAML file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness.launch_specs import added_words, lacking, make_spec, recorded_flags

from headrace.engines.tensorrt_llm.driver import TensorrtLlmDriver
from headrace.engines.tensorrt_llm.launch import CONFIG_KEYS, EMITTED_CONFIG, config_of

DRIVER = TensorrtLlmDriver()
KNOWN_MEMORY = {"device_bytes": 85899345920, "working_bytes": 4294967296}

CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"parallel": {"tensor": 4}}, ["--tp_size", "4"]),
    ({"parallel": {"pipeline": 2}}, ["--pp_size", "2"]),
    ({"parallel": {"expert": 2}}, ["--ep_size", "2"]),
    ({"memory": {"fraction": 0.9, "of": "free"}}, ["--kv_cache_free_gpu_memory_fraction", "0.9"]),
    ({"batching": {"max_sequences": 64}}, ["--max_batch_size", "64"]),
    ({"batching": {"batched_tokens": 4096}}, ["--max_num_tokens", "4096"]),
    ({"parsers": {"tool": "qwen3", "reasoning": "qwen3"}}, ["--tool_parser", "qwen3", "--reasoning_parser", "qwen3"]),
    ({"telemetry": {"traces": "http://c:4317"}}, ["--otlp_traces_endpoint", "http://c:4317"]),
    ({"disaggregation": {"role": "prefill"}}, ["--server_role", "CONTEXT"]),
]

FILE_CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"memory": {"kv_dtype": "fp8_e4m3"}}, {"kv_cache_config": {"dtype": "fp8"}}),
    ({"memory": {"kv_bytes": 1073741824}}, {"kv_cache_config": {"max_gpu_total_bytes": 1073741824}}),
    ({"prefix_cache": {"enabled": False}}, {"kv_cache_config": {"enable_block_reuse": False}}),
    (
        {"kv_offload": {"host_bytes": 8589934592}, "parallel": {"tensor": 4}},
        {"kv_cache_config": {"host_cache_size": 2147483648}},
    ),
    ({"telemetry": {"kv_events": True}}, {"kv_cache_config": {"event_buffer_max_size": 1024}}),
    ({"batching": {"chunked_prefill": True}}, {"enable_chunked_prefill": True}),
    ({"structured_output": {"backend": "llguidance"}}, {"guided_decoding_backend": "llguidance"}),
    (
        {"speculative": {"method": "ngram", "tokens": 3}},
        {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3}},
    ),
    (
        {"speculative": {"method": "mtp", "tokens": 3}},
        {"speculative_config": {"decoding_type": "MTP", "num_nextn_predict_layers": 3}},
    ),
    (
        {"disaggregation": {"role": "prefill", "connector": "ucx"}},
        {"cache_transceiver_config": {"backend": "UCX"}, "disable_overlap_scheduler": True},
    ),
]


@pytest.mark.parametrize(("options", "words"), CASES, ids=lambda value: json.dumps(value)[:60])
def test_an_option_becomes_its_flags(options: dict[str, Any], words: list[str]):
    """Each declared option adds exactly its own flags, and nothing is a problem to TensorRT-LLM."""
    assert added_words(DRIVER, options) == words
    assert lacking(DRIVER, options) == []


@pytest.mark.parametrize(("options", "entries"), FILE_CASES, ids=lambda value: json.dumps(value)[:60])
def test_an_option_becomes_its_entry(options: dict[str, Any], entries: dict[str, Any]):
    """What has no flag is in the YAML file that --config names."""
    spec = make_spec(options)
    launch = DRIVER.launch(spec)
    path = Path(launch.argv[launch.argv.index("--config") + 1])
    written = yaml.safe_load(launch.files[path])
    assert written == config_of(spec)
    assert {key: written[key] for key in entries} == entries
    assert lacking(DRIVER, options) == []


def test_structured_output_and_metrics_are_on_without_being_declared():
    """Without a backend trtllm-serve would ignore response_format in silence, and its metrics are off by default."""
    assert config_of(make_spec()) == {
        "guided_decoding_backend": "xgrammar",
        "return_perf_metrics": True,
        "enable_iter_perf_stats": True,
    }
    assert "return_perf_metrics" not in config_of(make_spec({"telemetry": {"metrics": False}}))


def test_every_emitted_flag_is_one_that_trtllm_serve_has():
    """What the driver can put on a command line is in the list read from the sources, and is all that it puts."""
    emitted = {flag.flag for flag in DRIVER.emitted_flags}
    assert emitted <= recorded_flags("tensorrt_llm/serve_flags.txt")
    for options, _ in CASES:
        words = DRIVER.launch(make_spec(options, chat_template="x", trust_remote_code=True)).argv
        assert {word for word in words if word.startswith("--")} <= emitted


def test_every_entry_of_the_file_is_known():
    """The list of YAML keys is what the file can hold."""
    seen: set[str] = set()
    for options, _ in FILE_CASES:
        for key, value in config_of(make_spec(options)).items():
            seen |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) else {key}
    known = set(CONFIG_KEYS) | {"speculative_config.decoding_type", "speculative_config.num_nextn_predict_layers"}
    assert seen <= known
    assert {flag.flag for flag in EMITTED_CONFIG} == set(CONFIG_KEYS)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"parallel": {"data": 2}}, ["parallel.data"]),
        ({"quantization": "fp8"}, ["quantization"]),
        ({"experts": {"balance": True}}, ["experts.balance"]),
        ({"batching": {"max_queued": 5}}, ["batching.max_queued"]),
        ({"telemetry": {"log_requests": True}}, ["telemetry.log_requests"]),
        ({"structured_output": {"backend": "outlines"}}, ["structured_output.backend"]),
        ({"runtime": {"device": "cpu"}}, ["runtime.device"]),
        ({"disaggregation": {"role": "both"}}, ["disaggregation.role"]),
        ({"memory": {"fraction": 0.85, **KNOWN_MEMORY}}, ["memory.of"]),
        (
            {"kv_offload": {"host_bytes": 1073741824, "backend": "lmcache"}},
            ["kv_offload.backend", "kv_offload.backend"],
        ),
    ],
)
def test_what_tensorrt_llm_cannot_do_is_a_problem(options: dict[str, Any], keys: list[str]):
    """It is named by its key, and never dropped; a fraction of all memory needs the weights' size."""
    assert lacking(DRIVER, options) == keys


def test_embeddings_are_not_served():
    """trtllm-serve answers no /v1/embeddings in the versions read."""
    assert lacking(DRIVER, {}, embeddings=True) == ["embeddings"]
