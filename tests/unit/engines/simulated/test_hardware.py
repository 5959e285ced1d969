"""From GPU and model to the engine that is simulated."""

from pathlib import Path

import pytest

from headrace.domain.operator_error import OperatorError
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.hardware import Hardware, model_of, request_overhead_s
from headrace.simulation.model import CacheKind

H100 = Hardware(dialect=DialectKind.VLLM, gpu="h100", model="qwen2.5-32b", tensor_parallel=4)


def decode_step_s(hardware: Hardware) -> float:
    return model_of(hardware).clock.step_s(0, 0, 0, 1, 1, 1000)


def test_more_and_faster_gpus_take_less_time():
    """The time of a step follows from what the GPUs can do."""
    two = Hardware(dialect=DialectKind.VLLM, gpu="h100", model="qwen2.5-32b", tensor_parallel=2)
    older = Hardware(dialect=DialectKind.VLLM, gpu="a100", model="qwen2.5-32b", tensor_parallel=4)
    assert decode_step_s(H100) < decode_step_s(two)
    assert decode_step_s(H100) < decode_step_s(older)


@pytest.mark.parametrize("dialect", list(DialectKind))
def test_every_engine_has_its_own_cache_and_blocks(dialect: DialectKind):
    """vLLM hashes blocks of 16, SGLang has a radix tree, TensorRT-LLM blocks of 32, llama.cpp slots."""
    made = model_of(Hardware(dialect=dialect, gpu="h100", model="qwen2.5-7b"))
    expected = {
        DialectKind.VLLM: (CacheKind.BLOCK_HASH, 16),
        DialectKind.SGLANG: (CacheKind.RADIX, 1),
        DialectKind.TENSORRT_LLM: (CacheKind.BLOCK_HASH, 32),
        DialectKind.TRITON: (CacheKind.BLOCK_HASH, 32),
        DialectKind.LLAMACPP: (CacheKind.SLOTS, 1),
    }
    assert (made.kv.kind, made.kv.block_tokens) == expected[dialect]
    assert made.bounds.context_tokens <= made.kv.total_blocks * made.kv.block_tokens


def test_a_fraction_of_what_is_free_is_less_than_the_same_of_all():
    """TensorRT-LLM's fraction is taken after the weights, vLLM's before: the same number is not the same memory."""
    vllm, trtllm = (
        model_of(Hardware(dialect=dialect, gpu="h100", model="qwen2.5-32b", memory_fraction=0.9)).kv
        for dialect in (DialectKind.VLLM, DialectKind.TENSORRT_LLM)
    )
    assert vllm.total_blocks * vllm.block_tokens < trtllm.total_blocks * trtllm.block_tokens


def test_a_calibration_file_replaces_the_sheet(tmp_path: Path):
    """Measured step times are used as they are; a file that cannot be read is named."""
    path = tmp_path / "calibration.yaml"
    path.write_text(
        "{version: 1, engine: vllm, model: m, hardware: h, measured_at: '2026-11-30', request_overhead_s: 0.1,"
        " step: {curve: [{rows: 1, step_s: 0.25}]}}"
    )
    calibrated = Hardware(dialect=DialectKind.VLLM, gpu="h100", model="qwen2.5-7b", calibration=path)
    assert decode_step_s(calibrated) == 0.25
    assert request_overhead_s(calibrated) == 0.1
    assert request_overhead_s(H100) == 0
    path.write_text("{version: 9}")
    with pytest.raises(OperatorError, match=r"calibration\.yaml"):
        model_of(calibrated)


def test_bounds_that_do_not_fit_together_are_said():
    """More sequences than tokens in a step can never run at once."""
    with pytest.raises(OperatorError, match="max_sequences 8"):
        model_of(
            Hardware(
                dialect=DialectKind.VLLM, gpu="h100", model="m", step_s=0.01, max_sequences=8, max_batched_tokens=4
            )
        )
