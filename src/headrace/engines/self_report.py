"""What a running engine says of itself: version, KV number format, block size, parallel sizes, role. Pure.

The gateway asks `paths_of` and gives the replies to `read_self_report`, with the labels by which some engines show
settings on their page of metrics. Foreign bytes never raise: what cannot be read is not known.

Sources: runs of vLLM 0.32.0, SGLang 0.5.23 and llama.cpp b11549; TensorRT-LLM's tensorrt_llm/serve/openai_server.py and
metrics/collector.py, read alone.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from headrace.domain.endpoint import EngineKind
from headrace.domain.undecodable import UNDECODABLE
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
    said = _read(reply)
    if kind is EngineKind.SGLANG:
        return _sglang(said)
    if kind is EngineKind.LLAMACPP:
        return KvShape(engine=kind, version=_word(said.build_info))
    block = settings.get("block_size" if kind is EngineKind.VLLM else "page_size")
    return KvShape(
        engine=kind,
        version=_word(said.version),
        kv_dtype=_word(settings.get("cache_dtype")),
        block_tokens=_number(block),
        layout=_word(settings.get("kv_cache_layout")),
    )


class _Said(msgspec.Struct):
    """Members that are read, of whatever type they come; the rest of some hundred is passed over."""

    version: object = None
    build_info: object = None
    kv_cache_dtype: object = None
    dtype: object = None
    page_size: object = None
    tp_size: object = None
    pp_size: object = None
    dp_size: object = 1
    attn_dp_size: object = None
    attn_cp_size: object = 1
    enable_dp_attention: object = False
    enable_hisparse: object = False
    disaggregation_mode: object = None


NOTHING = _Said()


def _sglang(said: _Said) -> KvShape:
    """Its arguments as it runs. With hierarchical sparse attention halves may have pages of other sizes, in some
    versions."""
    kv_dtype, dtype = _word(said.kv_cache_dtype), _word(said.dtype)
    return KvShape(
        engine=EngineKind.SGLANG,
        version=_word(said.version),
        kv_dtype=dtype if kv_dtype == AUTO and dtype is not None else kv_dtype,
        block_tokens=None if said.enable_hisparse is True else _number(said.page_size),
        tensor=_attention_ranks(said),
        pipeline=_number(said.pp_size),
        role=_word(said.disaggregation_mode, nothing=()),
    )


def _attention_ranks(said: _Said) -> int | None:
    """Heads are shared between the ranks that are left when the data and context parallel ones of attention are taken
    out. Older versions name the former otherwise."""
    data = said.attn_dp_size
    if data is None:
        data = said.dp_size if said.enable_dp_attention is True else 1
    ranks, groups, context = _number(said.tp_size), _number(data), _number(said.attn_cp_size)
    if ranks is None or groups is None or context is None or ranks % (groups * context):
        return None
    return ranks // (groups * context)


def _read(reply: ProbeReply) -> _Said:
    if reply.status != 200:
        return NOTHING
    try:
        return msgspec.json.decode(reply.body, type=_Said)
    except UNDECODABLE:
        return NOTHING


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
