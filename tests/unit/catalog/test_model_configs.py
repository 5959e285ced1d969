"""The catalogue of model shapes: what a shape adds up to is what was published."""

import pytest

from headrace.catalog.model_configs import MODEL_CONFIGS, ModelConfig, find_model_config, model_config_names


def by_name(config: ModelConfig) -> str:
    return config.name


@pytest.mark.parametrize("config", MODEL_CONFIGS, ids=by_name)
def test_the_shape_adds_up_to_the_published_parameters(config: ModelConfig) -> None:
    """A wrong layer count, head or width would show here: the sum is within half a percent of what was published."""
    assert config.summed_parameters == pytest.approx(config.parameters, rel=0.005)


@pytest.mark.parametrize("config", MODEL_CONFIGS, ids=by_name)
def test_every_shape_has_a_source(config: ModelConfig) -> None:
    """Each fact can be looked up."""
    assert "huggingface.co" in config.source_url or "arXiv" in config.source_url


@pytest.mark.parametrize(
    "name", ["qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct", "QWEN2.5-32B-INSTRUCT", "Qwen/Qwen2.5-32B"]
)
def test_names_with_and_without_owner_and_tuning_are_found(name: str) -> None:
    """The short name of a command line and the full name of a declaration mean the same shape."""
    assert find_model_config(name) is find_model_config("Qwen/Qwen2.5-32B-Instruct")


def test_an_unknown_model_is_none() -> None:
    """A model that is not in the catalogue is not guessed."""
    assert find_model_config("qwen2.5-33b") is None


def test_no_short_name_stands_for_two_models() -> None:
    """Every model of the catalogue can be asked for."""
    assert len(model_config_names()) == len(MODEL_CONFIGS)


@pytest.mark.parametrize(
    ("name", "elements"),
    [("qwen2.5-32b", 131_072), ("deepseek-v3", 35_136), ("smollm2-135m", 11_520), ("llama-3.1-8b", 65_536)],
)
def test_kv_of_one_token(name: str, elements: int) -> None:
    """KV a token: 256 KiB in 16 bits for Qwen2.5-32B, 70 KB for DeepSeek-V3 by latent attention."""
    assert find_model_config(name).kv_elements_per_token == elements


def test_active_parameters_of_mixtures() -> None:
    """DeepSeek-V3 activates 37 billion, Qwen3-30B-A3B 3.3, Mixtral 12.9: as their authors say."""
    active = {name: find_model_config(name).active_parameters / 1e9 for name in model_config_names()}

    assert active["deepseek-v3"] == pytest.approx(37, rel=0.02)
    assert active["qwen3-30b-a3b"] == pytest.approx(3.3, rel=0.1)
    assert active["mixtral-8x7b"] == pytest.approx(12.9, rel=0.02)


def test_windows_leave_few_layers_that_see_everything() -> None:
    """Gemma 3 has one full layer in six, Gemma 2 every other."""
    assert find_model_config("gemma-3-27b").full_layers == 10
    assert find_model_config("gemma-2-9b").full_layers == 21
    assert find_model_config("llama-3.1-8b").window_layers == 0
