"""What running engines say of themselves."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.kv_shape import KvShape
from headrace.engines.self_report import PATHS, paths_of, read_self_report

SGLANG = {
    "version": "0.5.23",
    "kv_cache_dtype": "auto",
    "dtype": "auto",
    "page_size": 1,
    "tp_size": 8,
    "pp_size": 2,
    "dp_size": 1,
    "attn_dp_size": 4,
    "attn_cp_size": 1,
    "disaggregation_mode": "prefill",
}
VLLM_LABELS = {"block_size": "32", "cache_dtype": "auto", "kv_cache_layout": "None"}
"""Of a running vLLM 0.32.0's cache_config_info."""


def said(document: object) -> ProbeReply:
    return ProbeReply(status=200, body=msgspec.json.encode(document))


def test_vllm_tells_its_version_and_its_page_the_rest() -> None:
    """`None` in a label says nothing; before the page was read, only the version is known."""
    kind, version = EngineKind.VLLM, said({"version": "0.32.0+cpu"})
    assert read_self_report(kind, version, {}) == KvShape(engine=kind, version="0.32.0+cpu")
    expected = KvShape(engine=kind, version="0.32.0+cpu", kv_dtype="auto", block_tokens=32)
    assert read_self_report(kind, version, VLLM_LABELS) == expected
    assert read_self_report(kind, version, {**VLLM_LABELS, "kv_cache_layout": "HND"}).layout == "HND"


def test_sglang_tells_everything_in_one_place() -> None:
    """Ranks that share the heads of attention are what must fit, not all tensor-parallel ones."""
    found = read_self_report(EngineKind.SGLANG, said(SGLANG), {})
    assert found == KvShape(
        engine=EngineKind.SGLANG,
        version="0.5.23",
        kv_dtype="auto",
        block_tokens=1,
        tensor=2,
        pipeline=2,
        role="prefill",
    )
    assert read_self_report(EngineKind.SGLANG, said({**SGLANG, "enable_hisparse": True}), {}).block_tokens is None
    older = {name: value for name, value in SGLANG.items() if not name.startswith("attn_")}
    assert read_self_report(EngineKind.SGLANG, said({**older, "dp_size": 2}), {}).tensor == 8
    shared = {**older, "dp_size": 2, "enable_dp_attention": True, "dtype": "float16"}
    found = read_self_report(EngineKind.SGLANG, said(shared), {})
    assert (found.tensor, found.kv_dtype) == (4, "float16")


def test_tensorrt_llm_and_llamacpp_tell_what_they_have() -> None:
    """A version each, and TensorRT-LLM's page its blocks."""
    kind = EngineKind.TENSORRT_LLM
    labels = {"page_size": "64", "cache_dtype": "fp8"}
    expected = KvShape(engine=kind, version="1.3.0", block_tokens=64, kv_dtype="fp8")
    assert read_self_report(kind, said({"version": "1.3.0"}), labels) == expected
    kind = EngineKind.LLAMACPP
    assert read_self_report(kind, said({"build_info": "b11549-abc"}), {}).version == "b11549-abc"


def test_an_engine_of_an_unknown_kind_is_not_asked() -> None:
    """Any server of OpenAI's API: there is nothing to ask."""
    assert paths_of(EngineKind.OPENAI) == ()


@pytest.mark.parametrize("kind", list(PATHS))
@pytest.mark.parametrize(
    "reply",
    [
        ProbeReply(status=404, body=b'{"version":"9"}'),
        ProbeReply(status=None, is_timeout=True),
        ProbeReply(status=200, body=b"{"),
        ProbeReply(status=200, body=b"[" * 100_000),
        ProbeReply(status=200, body=b"\xff\xfe"),
        said([1]),
        said({"version": "", "build_info": ""}),
        said({"version": "9" * 81, "build_info": "9" * 81}),
        said({"version": "1\n2", "build_info": "1\n2"}),
        said({"version": 3, "tp_size": "x", "page_size": -1, "pp_size": True, "build_info": None}),
        said({"tp_size": 3, "attn_dp_size": 2}),
        said({"tp_size": 10**30, "page_size": 0, "attn_dp_size": 0}),
    ],
)
def test_what_cannot_be_read_is_not_known(kind: EngineKind, reply: ProbeReply) -> None:
    """Bad replies are no report, and no trouble."""
    labels = {"block_size": "-1", "page_size": "9" * 40, "cache_dtype": "", "kv_cache_layout": "undefined"}
    assert read_self_report(kind, reply, labels) == KvShape(engine=kind)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)


@given(
    kind=st.sampled_from(list(PATHS)),
    said_=st.dictionaries(st.sampled_from([*SGLANG, "build_info", "enable_dp_attention"]), json_like, max_size=8),
    labels=st.dictionaries(st.sampled_from([*VLLM_LABELS, "page_size"]), st.text(max_size=12), max_size=4),
)
def test_whatever_is_said_is_read_without_failing(kind: EngineKind, said_: dict[str, object], labels: dict[str, str]):
    """Odd types in known members: what is kept is short words and small numbers."""
    try:
        body = msgspec.json.encode(said_)
    except (OverflowError, ValueError):
        return
    found = read_self_report(kind, ProbeReply(status=200, body=body), labels)
    assert all(word is None or 0 < len(word) <= 80 for word in (found.version, found.kv_dtype, found.layout))
    assert all(size is None or 0 < size <= 65_536 for size in (found.block_tokens, found.tensor, found.pipeline))
