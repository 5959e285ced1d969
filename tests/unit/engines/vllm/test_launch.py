"""What a declared option becomes on vLLM's command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.launch_specs import added_words, lacking, make_spec, recorded_flags

from headrace.engines.contract import ReplicaSpec
from headrace.engines.vllm.driver import VllmDriver

DRIVER = VllmDriver()

CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"parallel": {"tensor": 4}}, ["--tensor-parallel-size", "4"]),
    ({"parallel": {"pipeline": 2}}, ["--pipeline-parallel-size", "2"]),
    ({"parallel": {"data": 2}}, ["--data-parallel-size", "2"]),
    (
        {"parallel": {"tensor": 8, "expert": 8}},
        ["--tensor-parallel-size", "8", "--enable-expert-parallel"],
    ),
    ({"experts": {"balance": True}}, ["--enable-eplb"]),
    (
        {"experts": {"balance": True, "redundant": 2}},
        ["--enable-eplb", "--eplb-config", '{"num_redundant_experts":2}'],
    ),
    ({"memory": {"fraction": 0.85}}, ["--gpu-memory-utilization", "0.85"]),
    ({"memory": {"kv_bytes": 1073741824}}, ["--kv-cache-memory-bytes", "1073741824"]),
    ({"memory": {"kv_dtype": "bf16"}}, ["--kv-cache-dtype", "bfloat16"]),
    ({"batching": {"batched_tokens": 2048}}, ["--max-num-batched-tokens", "2048"]),
    ({"batching": {"chunked_prefill": True}}, ["--enable-chunked-prefill"]),
    ({"batching": {"chunked_prefill": False}}, ["--no-enable-chunked-prefill"]),
    ({"batching": {"max_queued": 7}}, ["--max-num-queued-reqs", "1031"]),
    (
        {"batching": {"max_sequences": 8, "max_queued": 7}},
        ["--max-num-seqs", "8", "--max-num-queued-reqs", "15"],
    ),
    ({"prefix_cache": {"enabled": True}}, ["--enable-prefix-caching"]),
    ({"prefix_cache": {"enabled": False}}, ["--no-enable-prefix-caching"]),
    ({"prefix_cache": {"tenant_isolation": True}}, []),
    ({"quantization": "awq"}, ["--quantization", "awq"]),
    ({"speculative": {"method": "ngram", "tokens": 3}}, ["--spec-method", "ngram", "--spec-tokens", "3"]),
    (
        {"kv_offload": {"host_bytes": 68719476736}},
        ["--kv-offloading-size", "64", "--kv-offloading-backend", "native"],
    ),
    (
        {"kv_offload": {"host_bytes": 1610612736, "backend": "lmcache"}},
        ["--kv-offloading-size", "1.5", "--kv-offloading-backend", "lmcache"],
    ),
    (
        {"structured_output": {"backend": "llguidance"}},
        ["--structured-outputs-config", '{"backend":"guidance"}'],
    ),
    ({"parsers": {"tool": "hermes"}}, ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]),
    ({"parsers": {"reasoning": "qwen3"}}, ["--reasoning-parser", "qwen3"]),
    ({"telemetry": {"metrics": False}}, ["--disable-log-stats"]),
    ({"telemetry": {"traces": "http://c:4317"}}, ["--otlp-traces-endpoint", "http://c:4317"]),
    ({"telemetry": {"log_requests": True}}, ["--enable-log-requests"]),
    ({"runtime": {"device": "cpu"}}, []),
    ({"extra_args": ["--block-size", "32"]}, ["--block-size", "32"]),
]

EVERYTHING: dict[str, Any] = {
    "parallel": {"tensor": 2, "pipeline": 2, "data": 2, "expert": 4},
    "memory": {"fraction": 0.8, "kv_dtype": "fp8_e4m3"},
    "batching": {"max_sequences": 8, "batched_tokens": 512, "chunked_prefill": True},
    "prefix_cache": {"enabled": True},
    "quantization": "fp8",
    "speculative": {"method": "eagle", "model": "draft"},
    "kv_offload": {"host_bytes": 68719476736},
    "experts": {"balance": True, "redundant": 2},
    "structured_output": {"backend": "xgrammar"},
    "parsers": {"tool": "hermes", "reasoning": "qwen3"},
    "telemetry": {"kv_events": True, "traces": "http://c:4317", "log_requests": True},
    "disaggregation": {"role": "prefill"},
}


def everything() -> ReplicaSpec:
    return make_spec(
        EVERYTHING, draft_path=Path("/models/draft"), chat_template="{{ x }}", trust_remote_code=True, embeddings=True
    )


@pytest.mark.parametrize(("options", "words"), CASES, ids=lambda value: json.dumps(value)[:60])
def test_an_option_becomes_its_flags(options: dict[str, Any], words: list[str]):
    """Each declared option adds exactly its own flags, and nothing is a problem to vLLM."""
    assert added_words(DRIVER, options) == words
    assert lacking(DRIVER, options) == []


def test_every_emitted_flag_is_one_that_vllm_has():
    """What the driver can put on a command line is in the recorded --help of the real vLLM, and is all that it puts."""
    emitted = {flag.flag for flag in DRIVER.emitted_flags}
    assert emitted <= recorded_flags("vllm/serve_flags.txt")
    assert {word for word in DRIVER.launch(everything()).argv if word.startswith("--")} <= emitted
    assert all(flag.source.startswith("vLLM 0.") for flag in DRIVER.emitted_flags)


def test_safe_bounds_hold_without_being_declared():
    """Streams drain at SIGTERM, the queue is bounded, cached tokens are reported, nothing but this machine connects."""
    launch = DRIVER.launch(make_spec())
    words = " ".join(launch.argv)
    assert words.startswith("vllm serve /models/qwen --served-model-name qwen --host 127.0.0.1 --port 30000")
    assert "--shutdown-timeout 18" in words
    assert "--max-num-queued-reqs 2048" in words
    assert "--enable-prompt-tokens-details" in words
    assert "log-requests" not in words
    assert launch.env["HF_HUB_OFFLINE"] == "1"
    assert DRIVER.launch(make_spec(load_timeout_s=1800.5)).env["VLLM_ENGINE_READY_TIMEOUT_S"] == "1801"


@pytest.mark.parametrize(("stop_s", "bound"), [(0.5, "1"), (3.0, "1"), (4.0, "2"), (60.0, "58")])
def test_the_drain_ends_before_the_kill(stop_s: float, bound: str):
    """vLLM's own bound leaves it time to end within stop_s, and is never 0, which would cut streams."""
    argv = DRIVER.launch(make_spec(stop_s=stop_s)).argv
    assert argv[argv.index("--shutdown-timeout") + 1] == bound


def test_kv_events_and_transfer_have_ports_of_their_own():
    """Both follow from the engine's port, so that two replicas differ and a restart finds the same."""
    launch = DRIVER.launch(everything())
    events = json.loads(launch.argv[launch.argv.index("--kv-events-config") + 1])
    transfer = json.loads(launch.argv[launch.argv.index("--kv-transfer-config") + 1])
    assert events["endpoint"] == "tcp://[::ffff:127.0.0.1]:40000"
    assert events["replay_endpoint"] == "tcp://[::ffff:127.0.0.1]:45000"
    assert transfer == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer",
        "kv_load_failure_policy": "recompute",
    }
    assert launch.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "50000"


def test_a_chat_template_is_handed_over_as_a_file():
    """vLLM takes a template on one line or as a file; a file holds any."""
    launch = DRIVER.launch(everything())
    path = Path("/state/launch/main-0/chat_template.jinja")
    assert launch.files == {path: "{{ x }}"}
    assert str(path) in launch.argv


@pytest.mark.parametrize(
    ("runtime", "start"),
    [
        ({}, ["vllm", "serve"]),
        ({"python": "/v/bin/python"}, ["/v/bin/python", "-m", "vllm.entrypoints.cli.main", "serve"]),
        ({"command": ["docker", "exec", "e", "vllm"]}, ["docker", "exec", "e", "vllm", "serve"]),
    ],
)
def test_the_program_is_the_declared_one(runtime: dict[str, Any], start: list[str]):
    """An environment's Python, any command, or what is on PATH; its variables win over headrace's."""
    launch = DRIVER.launch(make_spec({"runtime": {**runtime, "env": {"HF_HUB_OFFLINE": "0", "A": "b"}}}))
    assert list(launch.argv[: len(start)]) == start
    assert launch.env["HF_HUB_OFFLINE"] == "0"
    assert launch.env["A"] == "b"


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"memory": {"kv_dtype": "q8_0"}}, ["memory.kv_dtype"]),
        ({"memory": {"fraction": 0.8, "of": "static"}}, ["memory.of"]),
        ({"parallel": {"tensor": 4, "expert": 2}}, ["parallel.expert"]),
        ({"kv_offload": {"host_bytes": 1073741824, "ttl_s": 60}}, ["kv_offload.ttl_s"]),
        ({"kv_offload": {"host_bytes": 1073741824}, "runtime": {"device": "cpu"}}, ["kv_offload.backend"]),
        ({"disaggregation": {"role": "both", "connector": "ucx"}}, ["disaggregation.connector"]),
    ],
)
def test_what_vllm_cannot_do_is_a_problem(options: dict[str, Any], keys: list[str]):
    """It is named by its key, and never dropped."""
    assert lacking(DRIVER, options) == keys


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "1"],
        ["--host=0.0.0.0"],
        ["--api-key", "x"],
        ["-tp", "2"],
        ["--tensor-parallel-size=2"],
        ["--tensor_parallel_size", "2"],
        ["--no-enable-log-requests"],
        ["--revision", "main"],
    ],
)
def test_extra_arguments_cannot_contradict(words: list[str]):
    """What an option or headrace itself sets is refused as an extra argument, in any spelling."""
    assert lacking(DRIVER, {"extra_args": words}) == ["extra_args.0"]


def test_kv_events_are_listened_for_where_others_connect():
    """vLLM connects, and nobody hears it, unless its address has a star or two colons in it: on all addresses in a
    container, on one of this machine, on one of IPv6."""
    for host, endpoint in (
        ("0.0.0.0", "tcp://*:40000"),
        ("127.0.0.1", "tcp://[::ffff:127.0.0.1]:40000"),
        ("fd00::7", "tcp://[fd00::7]:40000"),
    ):
        launch = DRIVER.launch(make_spec({"telemetry": {"kv_events": True}}, host=host))
        events = json.loads(launch.argv[launch.argv.index("--kv-events-config") + 1])
        assert events["endpoint"] == endpoint
