"""What every driver must do, run against each of them: probes, errors, dialect, launch."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ERRORS, ErrorCode, Fault
from headrace.engines.contract import (
    Driver,
    EngineUnavailableError,
    FieldRule,
    ProbeReply,
    ProbeVerdict,
    ReplicaSpec,
)
from headrace.engines.registry import DRIVERS, driver_for
from headrace.gateway.entry.fields import API_FIELDS

CAPTURES = Path(__file__).parents[1] / "captures" / "llamacpp"

DANGEROUS = {
    EngineKind.LLAMACPP: {"id_slot", "cache_prompt", "lora", "response_fields", "grammar_triggers", "chat_parser"},
    EngineKind.VLLM: {"priority", "cache_salt", "kv_transfer_params", "ec_transfer_params", "request_id"},
    EngineKind.SGLANG: {
        "priority",
        "rid",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "custom_logit_processor",
        "data_parallel_rank",
        "lora_path",
    },
    EngineKind.TENSORRT_LLM: {"priority", "cache_salt", "disaggregated_params", "lora_request", "prompt_token_ids"},
    EngineKind.OPENAI: {"priority", "cache_salt", "kv_transfer_params"},
}
"""Fields that only the gateway may set, by engine."""

NESTED = "error"
FLAT = "flat"


def answer(shape: str, message: str, code: int, kind: str = "BadRequestError") -> bytes:
    """An error answer in one of the shapes that engines use."""
    body = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": body} if shape == NESTED else {"object": "error", **body}).encode()


def capture(name: str) -> tuple[int, bytes]:
    """Status and body of a recorded answer of the real llama.cpp."""
    status = json.loads((CAPTURES / f"{name}.meta.json").read_text())["status"]
    return status, (CAPTURES / f"{name}.response").read_bytes()


ERROR_FACTS = [
    # llama.cpp: recorded
    (EngineKind.LLAMACPP, *capture("error_context"), ErrorCode.CONTEXT_TOO_LONG),
    (EngineKind.LLAMACPP, *capture("error_context_stream"), ErrorCode.CONTEXT_TOO_LONG),
    (EngineKind.LLAMACPP, *capture("error_context_messages"), ErrorCode.CONTEXT_TOO_LONG),
    (EngineKind.LLAMACPP, *capture("error_embeddings_too_long"), ErrorCode.CONTEXT_TOO_LONG),
    (EngineKind.LLAMACPP, *capture("error_type"), ErrorCode.INVALID_REQUEST),
    (EngineKind.LLAMACPP, *capture("error_messages"), ErrorCode.INVALID_REQUEST),
    (EngineKind.LLAMACPP, *capture("error_grammar"), ErrorCode.INVALID_REQUEST),
    (EngineKind.LLAMACPP, *capture("error_previous_response"), ErrorCode.INVALID_REQUEST),
    (EngineKind.LLAMACPP, *capture("error_embeddings"), ErrorCode.UNSUPPORTED_PARAMETER),
    (EngineKind.LLAMACPP, *capture("error_path"), ErrorCode.ROUTE_NOT_FOUND),
    (
        EngineKind.LLAMACPP,
        503,
        answer(NESTED, "Loading model", 503, "unavailable_error"),
        ErrorCode.ENGINE_REFUSED,
    ),
    # vLLM: vllm/renderers/params.py, vllm/entrypoints/serve/middleware/authenticate.py; 0.32.0 run on CPU
    (
        EngineKind.VLLM,
        400,
        answer(NESTED, "This model's maximum context length is 2048 tokens. However, you requested 3000.", 400),
        ErrorCode.CONTEXT_TOO_LONG,
    ),
    (EngineKind.VLLM, 400, answer(NESTED, "temperature must be non-negative", 400), ErrorCode.INVALID_REQUEST),
    (EngineKind.VLLM, 404, answer(NESTED, "The model `x` does not exist.", 404), ErrorCode.ENGINE_REFUSED),
    (EngineKind.VLLM, 404, b'{"detail":"Not Found"}', ErrorCode.ROUTE_NOT_FOUND),
    (EngineKind.VLLM, 401, b'{"error":"Unauthorized"}', ErrorCode.ENGINE_REFUSED),
    (EngineKind.VLLM, 500, answer(NESTED, "cannot schedule new futures after shutdown", 500), ErrorCode.ENGINE_REFUSED),
    (EngineKind.VLLM, 503, answer(NESTED, "The engine is currently busy", 503), ErrorCode.ENGINE_REFUSED),
    (EngineKind.VLLM, 200, answer(NESTED, "EngineCore died", 500, "InternalServerError"), ErrorCode.ENGINE_REFUSED),
    # SGLang: sglang/srt/managers/tokenizer_manager.py; 0.5.23 run on CPU
    (
        EngineKind.SGLANG,
        400,
        answer(FLAT, "The input (3000 tokens) is longer than the model's context length (2048 tokens).", 400),
        ErrorCode.CONTEXT_TOO_LONG,
    ),
    (
        EngineKind.SGLANG,
        200,
        answer(NESTED, "Requested token count exceeds the model's maximum context length of 2048 tokens.", 400),
        ErrorCode.CONTEXT_TOO_LONG,
    ),
    (EngineKind.SGLANG, 503, answer(FLAT, "The request queue is full.", 503), ErrorCode.ENGINE_REFUSED),
    (EngineKind.SGLANG, 400, answer(FLAT, "bad grammar", 400), ErrorCode.INVALID_REQUEST),
    (EngineKind.SGLANG, 500, answer(FLAT, "KVTransferError: prefill is gone", 500), ErrorCode.ENGINE_REFUSED),
    # TensorRT-LLM: tensorrt_llm/llmapi/llm.py, tensorrt_llm/serve/openai_server.py; never run by us
    (
        EngineKind.TENSORRT_LLM,
        400,
        answer(
            FLAT, "The sum of prompt length (9000.0), query length (0) should not exceed max_num_tokens (8192)", 400
        ),
        ErrorCode.CONTEXT_TOO_LONG,
    ),
    (EngineKind.TENSORRT_LLM, 400, answer(FLAT, "`logprobs` must be 1", 400), ErrorCode.INVALID_REQUEST),
    (EngineKind.TENSORRT_LLM, 400, answer(FLAT, "CUDA error: out of memory", 400), ErrorCode.ENGINE_REFUSED),
    (EngineKind.TENSORRT_LLM, 400, answer(FLAT, "Executor worker died", 400), ErrorCode.ENGINE_REFUSED),
    (
        EngineKind.TENSORRT_LLM,
        400,
        b'{"error": "1 validation error: input_value=\'CUDA out of memory\'"}',
        ErrorCode.INVALID_REQUEST,
    ),
    (EngineKind.TENSORRT_LLM, 503, answer(FLAT, "LLM is unavailable", 503), ErrorCode.ENGINE_REFUSED),
    # servers of OpenAI's API: OpenAI's error documentation
    (
        EngineKind.OPENAI,
        400,
        b'{"error":{"message":"Too many tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}',
        ErrorCode.CONTEXT_TOO_LONG,
    ),
    (
        EngineKind.OPENAI,
        429,
        b'{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}',
        ErrorCode.ENGINE_REFUSED,
    ),
    (EngineKind.OPENAI, 502, b"<html>bad gateway</html>", ErrorCode.ENGINE_REFUSED),
]


@pytest.fixture(params=sorted(EngineKind))
def driver(request: pytest.FixtureRequest) -> Driver:
    return driver_for(request.param)


def replica_spec(model_path: Path) -> ReplicaSpec:
    return ReplicaSpec(
        pool="p",
        replica=0,
        served_model="m",
        model_path=model_path,
        host="127.0.0.1",
        port=1234,
        context_tokens=2048,
        threads=1,
        embeddings=False,
        slot_dir=model_path.parent,
        file_dir=model_path.parent,
        stop_s=20,
    )


def test_every_kind_has_a_driver():
    """No engine can be declared that nothing can drive, and none is in the table twice."""
    assert set(DRIVERS) == set(EngineKind)
    assert [driver_for(kind).kind for kind in EngineKind] == list(EngineKind)


def test_a_busy_engine_is_never_taken_for_a_dead_one(driver: Driver):
    """A probe without an answer in time is busy, whatever the engine."""
    assert driver.read_probe(ProbeReply(status=None, is_timeout=True)) is ProbeVerdict.BUSY


def test_nothing_listening_is_dead(driver: Driver):
    """A refused or broken connection is dead."""
    assert driver.read_probe(ProbeReply(status=None, is_refused=True)) is ProbeVerdict.DEAD
    assert driver.read_probe(ProbeReply(status=None)) is ProbeVerdict.DEAD


def test_an_engine_that_answers_is_ready(driver: Driver):
    """200 is ready, and so is 401: it is alive, and the first request shows what it thinks of our credentials."""
    assert driver.read_probe(ProbeReply(status=200, body=b"{}")) is ProbeVerdict.READY
    assert driver.read_probe(ProbeReply(status=401, body=b"{}")) is ProbeVerdict.READY


def test_an_engine_that_says_503_gets_no_requests(driver: Driver):
    """503 is loading, except where only a dead core says it (vLLM listens once it has loaded)."""
    expected = ProbeVerdict.DEAD if driver.kind is EngineKind.VLLM else ProbeVerdict.LOADING
    assert driver.read_probe(ProbeReply(status=503, body=b"")) is expected


def test_an_executor_that_is_gone_is_not_taken_for_one_that_loads():
    """trtllm-serve lives on without its executor and says so for ever; while it starts it says that."""
    read = driver_for(EngineKind.TENSORRT_LLM).read_probe
    gone = b"LLM is unavailable. Please check the server logs for more details."
    assert read(ProbeReply(status=503, body=gone)) is ProbeVerdict.DEAD
    starting = b'{"error":{"type":"ServiceUnavailableError","code":"starting"}}'
    assert read(ProbeReply(status=503, body=starting)) is ProbeVerdict.LOADING


def test_a_trtllm_that_starts_says_so():
    """Newer versions answer every path with 503 `starting` while they load: alive, and not ready."""
    body = b'{"error":{"message":"starting","type":"ServiceUnavailableError","code":"starting"}}'
    driver = driver_for(EngineKind.TENSORRT_LLM)
    assert driver.read_probe(ProbeReply(status=503, body=body)) is ProbeVerdict.LOADING
    assert driver.translate_error(503, body).code is ErrorCode.ENGINE_REFUSED


def test_no_metrics_are_read_that_reading_uses_up():
    """trtllm-serve's /metrics is a queue of figures: whoever reads it takes them from whoever needs them."""
    metrics = driver_for(EngineKind.TENSORRT_LLM).metrics
    assert metrics is not None
    assert metrics.path == "/prometheus/metrics"


def test_the_readiness_path_generates_nothing(driver: Driver):
    """A probe must not take a place of a request: SGLang's /health does, so /ready is asked there."""
    paths = {EngineKind.SGLANG: "/ready", EngineKind.OPENAI: "/v1/models"}
    assert driver.ready_path == paths.get(driver.kind, "/health")


@pytest.mark.parametrize("kind", [EngineKind.SGLANG, EngineKind.OPENAI])
def test_a_server_without_the_readiness_path_is_alive(kind: EngineKind):
    """Old SGLang has no /ready and some servers no /v1/models: 404 proves that something serves."""
    assert driver_for(kind).read_probe(ProbeReply(status=404)) is ProbeVerdict.READY


@given(kind=st.sampled_from(EngineKind), status=st.none() | st.integers(0, 999), body=st.binary(), slow=st.booleans())
def test_any_probe_reply_is_judged(kind: EngineKind, status: int | None, body: bytes, slow: bool):
    """Arbitrary replies never raise."""
    assert driver_for(kind).read_probe(ProbeReply(status=status, body=body, is_timeout=slow)) in ProbeVerdict


@pytest.mark.parametrize(("kind", "status", "body", "expected"), ERROR_FACTS)
def test_known_errors_get_our_code(kind: EngineKind, status: int, body: bytes, expected: ErrorCode):
    """Every engine's known answers are put into the one table, over-long prompts into one code for all."""
    assert driver_for(kind).translate_error(status, body).code is expected


def test_an_over_long_prompt_shows_both_numbers():
    """The caller of llama.cpp learns how long the prompt was and how much there is room for."""
    message = driver_for(EngineKind.LLAMACPP).translate_error(*capture("error_context")).message
    assert "3010" in message
    assert "2048" in message


def test_the_engine_faults_may_fail_over_and_the_callers_may_not(driver: Driver):
    """A 500 goes to another replica; a 400 with an ordinary message does not."""
    assert ERRORS[driver.translate_error(500, b"{}").code].fault is Fault.ENGINE
    refused = driver.translate_error(400, answer(NESTED, "n must be at least 1", 400))
    assert ERRORS[refused.code].fault is Fault.CALLER
    assert "n must be at least 1" in refused.message


def test_rejected_credentials_are_not_blamed_on_the_caller(driver: Driver):
    """401 and 403 of an engine are about what headrace showed it."""
    for status in (401, 403):
        assert driver.translate_error(status, b'{"error":"Unauthorized"}').code is ErrorCode.ENGINE_REFUSED


def test_a_long_message_is_cut(driver: Driver):
    """Validation errors that repeat a whole prompt do not pass it on."""
    body = answer(NESTED, "bad: " + "x" * 100_000, 400)
    assert len(driver.translate_error(400, body).message) < 600


@given(kind=st.sampled_from(EngineKind), status=st.integers(0, 999), body=st.binary())
def test_arbitrary_bytes_never_raise(kind: EngineKind, status: int, body: bytes):
    """Whatever an engine sends, there is a code of the table and a printable message."""
    error = driver_for(kind).translate_error(status, body)
    assert error.code in ERRORS
    assert error.message.isprintable()
    assert error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(EngineKind),
    status=st.integers(0, 999),
    members=st.dictionaries(st.sampled_from(["message", "type", "param", "code", "n_ctx", "n_prompt_tokens"]), JSON),
    is_nested=st.booleans(),
)
def test_errors_of_odd_types_never_raise(kind: EngineKind, status: int, members: dict[str, object], is_nested: bool):
    """Members of the wrong type (a list as message, a word as code) are survived."""
    body = json.dumps({"error": members} if is_nested else members).encode()
    assert driver_for(kind).translate_error(status, body).code in ERRORS


def test_deep_json_is_survived(driver: Driver):
    """Nesting that exhausts a parser is an engine's fault like any other."""
    assert driver.translate_error(500, b"[" * 100_000).code is ErrorCode.ENGINE_REFUSED


def test_dangerous_fields_are_owned(driver: Driver):
    """What would steer scheduling, caches or transfers is taken from no caller."""
    owned = {name for name, rule in driver.dialect.fields.items() if rule is FieldRule.OWNED}
    assert DANGEROUS[driver.kind] <= owned


def test_no_driver_takes_a_field_of_the_public_apis_away(driver: Driver):
    """Owned and gated fields hold for all engines at once, so none may be one that OpenAI's or Anthropic's API has."""
    standard = set().union(*API_FIELDS.values())
    taken = {name for name, rule in driver.dialect.fields.items() if rule in (FieldRule.OWNED, FieldRule.GATED)}
    assert taken & standard == set()


def test_every_output_limit_is_known_as_one(driver: Driver):
    """Limits under another name cannot be used to get around a limit."""
    assert {"max_tokens", "max_completion_tokens", "max_output_tokens"} <= driver.dialect.output_limit_aliases
    assert ("n_predict" in driver.dialect.output_limit_aliases) == (driver.kind is EngineKind.LLAMACPP)


def test_only_known_paths_are_served(driver: Driver):
    """Each dialect is a choice of the five API paths, generation among them."""
    assert {"/v1/chat/completions", "/v1/completions"} <= driver.dialect.paths
    assert driver.dialect.paths <= {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
    }


def test_servers_that_are_only_attached_to_say_how(tmp_path: Path):
    """Asked to start an unknown server, headrace says to give endpoints instead."""
    with pytest.raises(EngineUnavailableError, match="endpoints:"):
        driver_for(EngineKind.OPENAI).launch(replica_spec(tmp_path / "model"))


def test_what_is_declared_reaches_each_engine_or_is_refused(driver: Driver, tmp_path: Path):
    """The options that a driver says it has are those that it has flags for, and the defaults are no problem to any."""
    spec = replica_spec(tmp_path / "model")
    assert list(driver.check_options(spec)) == []
    own = {flag.option.removeprefix("pools.<name>.") for flag in driver.emitted_flags}
    assert {option for option in own if "." in option and not option.startswith("models.")} <= driver.options
