"""Find out what kind of engine answers at a URL, from its replies to a few cheap GETs. Pure; the shell asks.

Counterpart: `fleet/deploy/attach.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import msgspec

from headrace.domain.endpoint import EngineKind
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.contract import ProbeReply

DETECTION_PATHS = ("/v1/models", "/props", "/version", "/server_info", "/get_server_info")
"""What to ask, each with GET; none of them generates anything."""

OWNERS: Mapping[str, EngineKind] = MappingProxyType(
    {
        "llamacpp": EngineKind.LLAMACPP,
        "vllm": EngineKind.VLLM,
        "sglang": EngineKind.SGLANG,
        "tensorrt_llm": EngineKind.TENSORRT_LLM,
    }
)
"""`data[].owned_by` of `/v1/models` -> engine. Source: captures of llama.cpp; the ModelCard classes of vLLM 0.33.0,
SGLang 0.5.23 and TensorRT-LLM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """What answers at a URL."""

    engine: EngineKind
    models: tuple[str, ...]
    """Names it serves its models by; empty where it did not say (no credentials, still loading)."""
    version: str | None = None
    is_alive: bool = True
    """Whether anything answered at all."""
    is_engine: bool = True
    """Whether the answers are those of an engine: a list of models, marks of a known one, a demand for a key, or an
    error in the API's own form while it loads."""
    needs_credentials: bool = False
    context_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    """Context of one sequence by model name, where the server says it."""


def detect(replies: Mapping[str, ProbeReply]) -> Detected:
    """Judge the replies by path.

    1. `/v1/models` names its owner: that engine.
    2. `/props` with `total_slots` is llama.cpp; `/server_info` or `/get_server_info` with `disaggregation_mode` or
       `tokenizer_path` is SGLang.
    3. Anything else that lists models is taken for a server of OpenAI's API; what does not is no engine.
    """
    listed = [model for model in _items(_document(replies, "/v1/models").get("data")) if _text(model.get("id"))]
    owners = [OWNERS.get(_text(model.get("owned_by")).lower()) for model in listed]
    server_info = {**_document(replies, "/get_server_info"), **_document(replies, "/server_info")}
    engine = next((owner for owner in owners if owner is not None), None) or _by_marks(replies, server_info)
    statuses = [reply.status for reply in replies.values() if reply.status is not None]
    needs_credentials = not listed and any(status in (401, 403) for status in statuses)
    return Detected(
        engine=engine,
        models=tuple(dict.fromkeys(_text(model["id"]) for model in listed)),
        version=_text(_document(replies, "/version").get("version")) or _text(server_info.get("version")) or None,
        is_alive=bool(statuses),
        is_engine=bool(listed) or engine is not EngineKind.OPENAI or needs_credentials or _is_loading(replies),
        needs_credentials=needs_credentials,
        context_tokens={_text(model["id"]): context for model in listed if (context := context_tokens_of(model))},
    )


def context_tokens_of(model: Mapping[str, Any]) -> int | None:
    """vLLM and SGLang say `max_model_len`, newer llama.cpp `meta.n_ctx`; the length of its training is no answer."""
    facts = _items([model.get("meta")])
    for value in (model.get("max_model_len"), *(fact.get("n_ctx") for fact in facts)):
        if isinstance(value, int) and value > 0:
            return value
    return None


def _by_marks(replies: Mapping[str, ProbeReply], server_info: Mapping[str, Any]) -> EngineKind:
    if "total_slots" in _document(replies, "/props"):
        return EngineKind.LLAMACPP
    if "tokenizer_path" in server_info and "disaggregation_mode" in server_info:
        return EngineKind.SGLANG
    return EngineKind.OPENAI


def _is_loading(replies: Mapping[str, ProbeReply]) -> bool:
    """llama.cpp answers 503 with an error of OpenAI's form until its model is loaded."""
    reply = replies.get("/v1/models")
    return reply is not None and reply.status == 503 and "error" in _decoded(reply)


def _document(replies: Mapping[str, ProbeReply], path: str) -> Mapping[str, Any]:
    reply = replies.get(path)
    return _decoded(reply) if reply is not None and reply.status == 200 else {}


def _decoded(reply: ProbeReply) -> Mapping[str, Any]:
    try:
        decoded: object = msgspec.json.decode(reply.body)
    except UNDECODABLE:
        return {}
    return cast("Mapping[str, Any]", decoded) if isinstance(decoded, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
