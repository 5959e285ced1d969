"""docs/launch-lines.md: one declaration, four engines."""

import pytest
from tools.launch_lines import ENGINES, launch_lines

from headrace.domain.endpoint import EngineKind

EXPECTED = {
    EngineKind.VLLM: [
        *("--tensor-parallel-size 4", "--max-model-len 32768", "--gpu-memory-utilization 0.85", "--port 30000"),
    ],
    EngineKind.SGLANG: [
        *("--tp-size 4", "--context-length 32768", "--mem-fraction-static 0.8", "--port 30000", "--enable-metrics"),
    ],
    EngineKind.TENSORRT_LLM: [
        *("--tp_size 4", "--max_seq_len 32768", "--kv_cache_free_gpu_memory_fraction 0.802", "--port 30000"),
        *("return_perf_metrics: true", "guided_decoding_backend: xgrammar"),
    ],
    EngineKind.LLAMACPP: ["--ctx-size 131072", "--parallel 4", "--port 30000", "--metrics"],
}
"""What must be on each engine's command line. In GiB: 0.8 = 0.85 - 4 / 80 and
0.802 = (0.85 x 80 - 15.26 - 4) / (80 - 15.26 - 4)."""


def test_the_page_has_every_engine_that_headrace_starts() -> None:
    """None is forgotten."""
    assert set(ENGINES) == set(EXPECTED) == set(EngineKind) - {EngineKind.OPENAI}


@pytest.mark.parametrize("kind", list(EXPECTED))
def test_one_declaration_starts_four_engines(kind: EngineKind) -> None:
    """With nothing changed but the engine, each gets what is declared, in its own words."""
    text = "\n".join(launch_lines(kind))
    assert [words for words in EXPECTED[kind] if words not in text] == []
    assert "log-requests" not in text
