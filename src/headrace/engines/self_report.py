"""What a running engine says of itself: version, KV number format, block size, parallel sizes, role. Pure.

The gateway asks `paths_of` and gives the replies to `read_self_report`, with the labels by which some engines show
settings on their page of metrics. Foreign bytes never raise: what cannot be read is not known.

Sources: runs of vLLM 0.32.0, SGLang 0.5.23 and llama.cpp b11549; TensorRT-LLM's tensorrt_llm/serve/openai_server.py and
metrics/collector.py, read alone.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.kv_shape import AUTO, KvShape

PATHS: Mapping[EngineKind, tuple[str, ...]] = MappingProxyType(
    {
        EngineKind.VLLM: ("/version",),
        EngineKind.SGLANG: ("/server_info", "/get_server_info"),
        EngineKind.TENSORRT_LLM: ("/version",),
        EngineKind.LLAMACPP: ("/props",),
    }
)
"""Where each says it, newest name first: the next is asked where one is not there (404). None of them generates."""
LONGEST_WORD = 80
"""Characters of a version or a format; a longer one is none."""
MOST_PARTS = 65_536
"""Tokens of a block, ranks or stages; more is no such number."""


def paths_of(kind: EngineKind) -> tuple[str, ...]:
    """What to GET; empty where the engine has no such path."""
    return PATHS.get(kind, ())


def read_self_report(kind: EngineKind, reply: ProbeReply, settings: Mapping[str, str]) -> KvShape:
    """Read a reply to one of the paths, and `settings`: labels from the page of metrics, empty where none were read."""
    said = _document(reply)
    if kind is EngineKind.SGLANG:
        return _sglang(said)
    if kind is EngineKind.LLAMACPP:
        return KvShape(engine=kind, version=_word(said.get("build_info")))
    block = settings.get("block_size" if kind is EngineKind.VLLM else "page_size")
    return KvShape(
        engine=kind,
        version=_word(said.get("version")),
        kv_dtype=_word(settings.get("cache_dtype")),
        block_tokens=_number(block),
        layout=_word(settings.get("kv_cache_layout")),
    )


def _sglang(said: Mapping[str, Any]) -> KvShape:
    """Its arguments as it runs. Heads are shared between the ranks that are left when the data and context parallel
    ones of attention are taken out."""
    kv_dtype, dtype = _word(said.get("kv_cache_dtype")), _word(said.get("dtype"))
    if kv_dtype == AUTO and dtype is not None:
        kv_dtype = dtype
    return KvShape(
        engine=EngineKind.SGLANG,
        version=_word(said.get("version")),
        kv_dtype=kv_dtype,
        block_tokens=_number(said.get("page_size")),
        tensor=_attention_ranks(said),
        pipeline=_number(said.get("pp_size")),
        role=_word(said.get("disaggregation_mode"), nothing=()),
    )


def _attention_ranks(said: Mapping[str, Any]) -> int | None:
    ranks = _number(said.get("tp_size"))
    data = said.get("attn_dp_size")
    if data is None:  # older versions
        data = said.get("dp_size", 1) if said.get("enable_dp_attention") else 1
    groups, context = _number(data), _number(said.get("attn_cp_size", 1))
    if ranks is None or groups is None or context is None or ranks % (groups * context):
        return None
    return ranks // (groups * context)


def _document(reply: ProbeReply) -> Mapping[str, Any]:
    if reply.status != 200:
        return {}
    try:
        decoded: object = msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return {}
    return cast("Mapping[str, Any]", decoded) if isinstance(decoded, dict) else {}


def _word(value: object, *, nothing: tuple[str, ...] = ("None", "null", "undefined")) -> str | None:
    """A short printable text; `nothing` are words by which engines say that there is none."""
    if not isinstance(value, str) or value in nothing:
        return None
    text = value.strip()
    return text if text and len(text) <= LONGEST_WORD and text.isprintable() else None


def _number(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 8:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= MOST_PARTS else None
