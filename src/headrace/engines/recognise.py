"""Asking a URL which engine answers there and which models it serves, so that nobody has to write it down."""

from typing import Final

import httpx
import msgspec

from headrace.declaration.starter import FoundEngine, FoundModel
from headrace.domain.endpoint import EngineKind

OWNERS: Final = {
    "vllm": EngineKind.VLLM,
    "sglang": EngineKind.SGLANG,
    "tensorrt_llm": EngineKind.TENSORRT_LLM,
    "llamacpp": EngineKind.LLAMACPP,
}
"""`owned_by` in GET /v1/models -> engine.

Source: vLLM 0.33 entrypoints/openai/models/protocol.py, SGLang 0.5 srt/entrypoints/openai/protocol.py, TensorRT-LLM
serve/openai_protocol.py, llama.cpp tools/server: each engine's default. Anything else is an OpenAI-compatible server.
"""

REPLY_BYTES = 1_048_576
"""Largest model list that is looked at."""


class _Facts(msgspec.Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None


class _Card(msgspec.Struct):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None
    """vLLM, SGLang."""
    meta: _Facts | None = None
    """llama.cpp."""


class _Models(msgspec.Struct):
    data: list[_Card]


def recognise_engine(url: str, *, timeout_s: float, headers: dict[str, str] | None = None) -> FoundEngine | None:
    """Ask `url` for its models; None where nothing answers there, or nothing that serves OpenAI's API.

    An engine that wants a key for the list (401, 403) is found as OpenAI-compatible, without models.
    """
    address = url.rstrip("/").removesuffix("/v1")
    try:
        with (
            httpx.Client(timeout=timeout_s, trust_env=False, headers=headers) as client,
            client.stream("GET", f"{address}/v1/models") as response,
        ):
            if response.status_code in (401, 403):
                return FoundEngine(url=address, engine=EngineKind.OPENAI, models=())
            if response.status_code != 200:
                return None
            body = b""
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > REPLY_BYTES:
                    return None
        listed = msgspec.json.decode(body, type=_Models)
    except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError, UnicodeError):
        return None
    owner = listed.data[0].owned_by.lower() if listed.data else ""
    models = tuple(FoundModel(name=card.id, context_tokens=_context_tokens(card)) for card in listed.data)
    return FoundEngine(url=address, engine=OWNERS.get(owner, EngineKind.OPENAI), models=models)


def _context_tokens(card: _Card) -> int | None:
    if card.max_model_len is not None:
        return card.max_model_len
    return card.meta.n_ctx or card.meta.n_ctx_train if card.meta is not None else None
