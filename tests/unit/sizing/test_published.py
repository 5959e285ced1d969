"""Models of the catalogue, sized before they are fetched."""

import pytest

from headrace.catalog.model_configs import MODEL_CONFIGS, ModelConfig
from headrace.sizing.architecture import LayerKind
from headrace.sizing.kv import token_bytes
from headrace.sizing.published import find_published
from headrace.sizing.weights import checkpoint_bytes


@pytest.mark.parametrize("config", MODEL_CONFIGS, ids=lambda config: config.name)
def test_every_model_of_the_catalogue_is_sized(config: ModelConfig) -> None:
    """Parameters and KV elements are those of the catalogue, and so are the heads."""
    found = find_published(config.name)
    assert found is not None
    assert found.parameters.total == pytest.approx(config.parameters, rel=0.01)
    assert token_bytes(found) == config.kv_elements_per_token * 2


def test_the_precision_is_that_of_the_original() -> None:
    """DeepSeek-R1 comes in FP8, gpt-oss in MXFP4, most in 16 bits: 688 GB, 61 GiB and 16 GB."""
    sizes = {
        name: checkpoint_bytes(architecture)
        for name in ("deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b", "meta-llama/Llama-3.1-8B-Instruct")
        if (architecture := find_published(name)) is not None
    }
    assert sizes["deepseek-ai/DeepSeek-R1"] == pytest.approx(671e9, rel=0.01)  # without its MTP layer
    assert sizes["openai/gpt-oss-120b"] == pytest.approx(60.8 * 2**30, rel=0.03)
    assert sizes["meta-llama/Llama-3.1-8B-Instruct"] == pytest.approx(16_060_522_496, rel=0.001)


def test_windows_and_unknown_models() -> None:
    """Gemma's windows are kept; a quantized copy is another checkpoint, and not known."""
    gemma = find_published("google/gemma-3-27b-it")
    assert gemma is not None
    assert gemma.cache_layers(LayerKind.WINDOW) == 52
    assert find_published("Qwen/Qwen2.5-7B-Instruct-AWQ") is None
