"""What a declared option becomes on SGLang's command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.launch_specs import added_words, lacking, make_spec, recorded_flags

from headrace.engines.sglang.driver import SglangDriver

DRIVER = SglangDriver()
KNOWN_MEMORY = {"device_bytes": 85899345920, "working_bytes": 4294967296}

CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"parallel": {"tensor": 4}}, ["--tp-size", "4"]),
    ({"parallel": {"pipeline": 2}}, ["--pp-size", "2"]),
    ({"parallel": {"data": 2}}, ["--dp-size", "2"]),
    ({"parallel": {"expert": 8}}, ["--ep-size", "8"]),
    ({"experts": {"balance": True, "redundant": 2}}, ["--enable-eplb", "--ep-num-redundant-experts", "2"]),
    ({"memory": {"fraction": 0.8, "of": "static"}}, ["--mem-fraction-static", "0.8"]),
    ({"memory": {"fraction": 0.85, "of": "total", **KNOWN_MEMORY}}, ["--mem-fraction-static", "0.8"]),
    ({"memory": {"kv_dtype": "fp8_e5m2"}}, ["--kv-cache-dtype", "fp8_e5m2"]),
    ({"batching": {"max_sequences": 8}}, ["--max-running-requests", "8"]),
    (
        {"batching": {"batched_tokens": 2048}},
        ["--max-prefill-tokens", "2048", "--chunked-prefill-size", "2048"],
    ),
    ({"batching": {"chunked_prefill": False}}, ["--chunked-prefill-size", "-1"]),
    ({"batching": {"chunked_prefill": True}}, []),
    ({"batching": {"max_queued": 0}}, ["--max-queued-requests", "0"]),
    ({"prefix_cache": {"enabled": False}}, ["--disable-radix-cache"]),
    ({"prefix_cache": {"enabled": True, "tenant_isolation": True}}, []),
    ({"quantization": "fp8"}, ["--quantization", "fp8"]),
    (
        {"speculative": {"method": "ngram", "tokens": 3}},
        ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "3"],
    ),
    (
        {"speculative": {"method": "mtp", "tokens": 3}},
        [
            *("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"),
            *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
        ],
    ),
    (
        {"kv_offload": {"host_bytes": 64_000_000_000}, "parallel": {"tensor": 2}},
        ["--tp-size", "2", "--enable-hierarchical-cache", "--hicache-size", "32"],
    ),
    (
        {"kv_offload": {"host_bytes": 1073741824, "backend": "lmcache"}},
        ["--enable-lmcache", "--lmcache-config-file", "/state/launch/main-0/lmcache.yaml"],
    ),
    ({"structured_output": {"backend": "llguidance"}}, ["--grammar-backend", "llguidance"]),
    (
        {"parsers": {"tool": "qwen", "reasoning": "qwen3"}},
        ["--tool-call-parser", "qwen", "--reasoning-parser", "qwen3"],
    ),
    ({"telemetry": {"traces": "http://c:4317"}}, ["--enable-trace", "--otlp-traces-endpoint", "c:4317"]),
    ({"telemetry": {"log_requests": True}}, ["--log-requests"]),
    ({"runtime": {"device": "cpu"}}, ["--device", "cpu"]),
    (
        {"disaggregation": {"role": "decode", "connector": "mooncake"}},
        [
            *("--disaggregation-mode", "decode", "--disaggregation-transfer-backend", "mooncake"),
            *("--disaggregation-bootstrap-port", "50000"),
        ],
    ),
    ({"extra_args": ["--attention-backend", "torch_native"]}, ["--attention-backend", "torch_native"]),
]


@pytest.mark.parametrize(("options", "words"), CASES, ids=lambda value: json.dumps(value)[:60])
def test_an_option_becomes_its_flags(options: dict[str, Any], words: list[str]):
    """Each declared option adds exactly its own flags, and nothing is a problem to SGLang."""
    assert added_words(DRIVER, options) == words
    assert lacking(DRIVER, options) == []


def test_every_emitted_flag_is_one_that_sglang_has():
    """What the driver can put on a command line is in the recorded --help of SGLang, and is all that it puts."""
    emitted = {flag.flag for flag in DRIVER.emitted_flags}
    assert emitted <= recorded_flags("sglang/launch_server_flags.txt")
    for options, _ in CASES:
        spec = make_spec({**options, "extra_args": []}, chat_template="x", trust_remote_code=True, embeddings=True)
        assert {word for word in DRIVER.launch(spec).argv if word.startswith("--")} <= emitted | {"--model-path"}


def test_safe_bounds_hold_without_being_declared():
    """Metrics are on, the queue is bounded, cached tokens are reported, nothing but this machine connects."""
    words = " ".join(DRIVER.launch(make_spec()).argv)
    assert words.startswith("sglang serve --model-path /models/qwen --served-model-name qwen --host 127.0.0.1")
    assert "--enable-metrics" in words
    assert "--max-queued-requests 1024" in words
    assert "--enable-cache-report" in words
    assert "--log-requests" not in words
    assert "--enable-metrics" not in DRIVER.launch(make_spec({"telemetry": {"metrics": False}})).argv


def test_an_environment_on_a_cpu():
    """The environment's Python starts the server's module, told to compute on the CPU."""
    launch = DRIVER.launch(make_spec({"runtime": {"python": "/s/bin/python", "device": "cpu"}}))
    assert launch.argv[:3] == ("/s/bin/python", "-m", "sglang.launch_server")
    assert launch.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert launch.env["OMP_NUM_THREADS"] == "1"


def test_lmcache_gets_its_share_as_a_file():
    """LMCache is configured by a file with the host memory of each process."""
    options = {"kv_offload": {"host_bytes": 2147483648, "backend": "lmcache"}, "parallel": {"tensor": 2}}
    [(path, text)] = DRIVER.launch(make_spec(options)).files.items()
    assert path == Path("/state/launch/main-0/lmcache.yaml")
    assert "max_local_cpu_size: 1.000" in text


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"memory": {"kv_bytes": 1073741824}}, ["memory.kv_bytes"]),
        ({"memory": {"fraction": 0.85}}, ["memory.of"]),
        ({"memory": {"kv_dtype": "fp16"}}, ["memory.kv_dtype"]),
        ({"kv_offload": {"host_bytes": 1073741824}, "parallel": {"tensor": 2}}, ["kv_offload.host_bytes"]),
        ({"disaggregation": {"role": "both"}}, ["disaggregation.role"]),
        ({"disaggregation": {"role": "prefill", "connector": "mpi"}}, ["disaggregation.connector"]),
        ({"extra_args": ["--tensor-parallel-size", "2"]}, ["extra_args.0"]),
        ({"extra_args": ["--api-key=x", "--mem-fraction-static", "0.5"]}, ["extra_args.0", "extra_args.1"]),
    ],
)
def test_what_sglang_cannot_do_is_a_problem(options: dict[str, Any], keys: list[str]):
    """It is named by its key, and never dropped."""
    assert lacking(DRIVER, options) == keys


def test_kv_events_are_listened_for_on_this_machine_too():
    """SGLang connects, and nobody hears it, unless its address has a star or two colons in it."""
    launch = DRIVER.launch(make_spec({"telemetry": {"kv_events": True}}))
    events = json.loads(launch.argv[launch.argv.index("--kv-events-config") + 1])
    assert events["endpoint"] == "tcp://[::ffff:127.0.0.1]:40000"
    assert events["replay_endpoint"] == "tcp://[::ffff:127.0.0.1]:45000"
