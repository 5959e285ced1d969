"""Published shapes of models: layers, heads, experts, windows, vocabulary, and what follows from them by arithmetic.

Facts with their source, for sizing and for simulated timing. Parameters are the published totals of the text model;
tests compare them with what the shape adds up to.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector a token and layer instead of keys and values."""

    query_rank: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Mixture of experts. `dense_layers`: the first layers that have one plain feed-forward block instead."""

    count: int
    active: int
    """Chosen for each token, shared ones not counted."""
    intermediate: int
    shared: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Layers that see only the last tokens. Every `full_every`-th layer sees all."""

    tokens: int
    full_every: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of one model. Units: elements and tokens; sizes in bytes follow from the precision."""

    name: str
    """As on the Hugging Face Hub."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    """Of a plain feed-forward block."""
    vocabulary: int
    context_tokens: int
    parameters: int
    is_embedding_tied: bool = False
    latent: LatentAttention | None = None
    experts: Experts | None = None
    window: SlidingWindow | None = None
    source: str = ""
    """Where the shape was published, if not in the model's own config.json."""

    @property
    def source_url(self) -> str:
        return self.source or f"https://huggingface.co/{self.name}/blob/main/config.json"

    @property
    def window_layers(self) -> int:
        return 0 if self.window is None else self.layers - self.layers // self.window.full_every

    @property
    def full_layers(self) -> int:
        return self.layers - self.window_layers

    @property
    def kv_elements_per_layer(self) -> int:
        """Elements that one token's KV takes in one layer."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def kv_elements_per_token(self) -> int:
        """Elements that one token's KV takes in all layers, none of them beyond its window."""
        return self.layers * self.kv_elements_per_layer

    @property
    def attention_parameters(self) -> int:
        """Weights of the attention of one layer, biases and norms aside."""
        if self.latent is None:
            return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        latent = self.latent
        query = latent.query_rank * (self.hidden + self.heads * (latent.nope_dim + latent.rope_dim))
        compress = self.hidden * (latent.kv_rank + latent.rope_dim)
        expand = latent.kv_rank * self.heads * (latent.nope_dim + latent.value_dim)
        return query + compress + expand + self.heads * latent.value_dim * self.hidden

    @property
    def moe_layers(self) -> int:
        return 0 if self.experts is None else self.layers - self.experts.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert in one layer."""
        return 0 if self.experts is None else 3 * self.hidden * self.experts.intermediate

    @property
    def head_parameters(self) -> int:
        """Weights of the output head, which every generated token reads."""
        return self.vocabulary * self.hidden

    @property
    def always_read_parameters(self) -> int:
        """Weights that every step reads whatever is in the batch: all but routed experts and the input embedding."""
        dense = 3 * self.hidden * self.intermediate * (self.layers - self.moe_layers)
        shared = 0
        if self.experts is not None:
            shared = self.moe_layers * (self.experts.shared * self.expert_parameters + self.hidden * self.experts.count)
        return self.layers * self.attention_parameters + dense + shared + self.head_parameters

    @property
    def routed_parameters(self) -> int:
        """Weights of all experts among which tokens choose."""
        return 0 if self.experts is None else self.moe_layers * self.experts.count * self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Weights that one token passes through, input embedding aside."""
        routed = 0 if self.experts is None else self.moe_layers * self.experts.active * self.expert_parameters
        return self.always_read_parameters + routed

    @property
    def summed_parameters(self) -> int:
        """What the shape adds up to, biases and norms aside: a check of `parameters`."""
        embedding = 0 if self.is_embedding_tied else self.head_parameters
        return self.always_read_parameters + self.routed_parameters + embedding


def _qwen25(size: str, parameters: int, shape: tuple[int, ...], *, is_tied: bool = False) -> ModelConfig:
    layers, hidden, heads, kv_heads, intermediate = shape
    return ModelConfig(
        name=f"Qwen/Qwen2.5-{size}-Instruct",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate=intermediate,
        vocabulary=151_936 if is_tied else 152_064,
        context_tokens=32_768,
        parameters=parameters,
        is_embedding_tied=is_tied,
    )


def _qwen3(
    size: str, parameters: int, shape: tuple[int, ...], *, is_tied: bool = False, experts: Experts | None = None
) -> ModelConfig:
    layers, hidden, heads, kv_heads, intermediate = shape
    return ModelConfig(
        name=f"Qwen/Qwen3-{size}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        intermediate=intermediate,
        vocabulary=151_936,
        context_tokens=40_960,
        parameters=parameters,
        is_embedding_tied=is_tied,
        experts=experts,
    )


def _llama3(name: str, parameters: int, shape: tuple[int, ...], *, is_tied: bool = False) -> ModelConfig:
    layers, hidden, heads, head_dim, intermediate = shape
    return ModelConfig(
        name=f"meta-llama/{name}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=head_dim,
        intermediate=intermediate,
        vocabulary=128_256,
        context_tokens=131_072,
        parameters=parameters,
        is_embedding_tied=is_tied,
    )


def _gemma(
    name: str, parameters: int, shape: tuple[int, ...], *, window: SlidingWindow, vocabulary: int, source: str = ""
) -> ModelConfig:
    layers, hidden, heads, kv_heads, head_dim, intermediate, context_tokens = shape
    return ModelConfig(
        name=f"google/{name}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        vocabulary=vocabulary,
        context_tokens=context_tokens,
        parameters=parameters,
        is_embedding_tied=True,
        window=window,
        source=source,
    )


def _gpt_oss(size: str, parameters: int, *, layers: int, experts: int) -> ModelConfig:
    return ModelConfig(
        name=f"openai/gpt-oss-{size}",
        layers=layers,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        intermediate=2880,
        vocabulary=201_088,
        context_tokens=131_072,
        parameters=parameters,
        experts=Experts(count=experts, active=4, intermediate=2880),
        window=SlidingWindow(tokens=128, full_every=2),
    )


def _mixtral(size: str, parameters: int, shape: tuple[int, ...]) -> ModelConfig:
    layers, hidden, heads, intermediate, context_tokens = shape
    return ModelConfig(
        name=f"mistralai/Mixtral-{size}-Instruct-v0.1",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        intermediate=intermediate,
        vocabulary=32_000,
        context_tokens=context_tokens,
        parameters=parameters,
        experts=Experts(count=8, active=2, intermediate=intermediate),
    )


def _deepseek_v3(name: str) -> ModelConfig:
    return ModelConfig(
        name=f"deepseek-ai/{name}",
        layers=61,
        hidden=7168,
        heads=128,
        kv_heads=128,
        head_dim=128,
        intermediate=18_432,
        vocabulary=129_280,
        context_tokens=163_840,
        parameters=671_000_000_000,
        latent=LatentAttention(query_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128),
        experts=Experts(count=256, active=8, intermediate=2048, shared=1, dense_layers=3),
    )


def _small_llama(name: str, parameters: int, shape: tuple[int, ...]) -> ModelConfig:
    layers, hidden, heads, kv_heads, intermediate = shape
    return ModelConfig(
        name=f"HuggingFaceTB/{name}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64,
        intermediate=intermediate,
        vocabulary=49_152,
        context_tokens=8192,
        parameters=parameters,
        is_embedding_tied=True,
    )


_GEMMA_2 = SlidingWindow(tokens=4096, full_every=2)
_GEMMA_3 = SlidingWindow(tokens=1024, full_every=6)
_GEMMA_3_REPORT = "arXiv:2503.19786 tables 1 and 2 (the vision tower is not counted); shape: config.json on the Hub"


MODEL_CONFIGS: tuple[ModelConfig, ...] = (
    _qwen25("0.5B", 494_032_768, (24, 896, 14, 2, 4864), is_tied=True),
    _qwen25("1.5B", 1_543_714_304, (28, 1536, 12, 2, 8960), is_tied=True),
    _qwen25("3B", 3_085_938_688, (36, 2048, 16, 2, 11_008), is_tied=True),
    _qwen25("7B", 7_615_616_512, (28, 3584, 28, 4, 18_944)),
    _qwen25("14B", 14_770_033_664, (48, 5120, 40, 8, 13_824)),
    _qwen25("32B", 32_763_876_352, (64, 5120, 40, 8, 27_648)),
    _qwen25("72B", 72_706_203_648, (80, 8192, 64, 8, 29_568)),
    _qwen3("0.6B", 596_049_920, (28, 1024, 16, 8, 3072), is_tied=True),
    _qwen3("4B", 4_022_468_096, (36, 2560, 32, 8, 9728), is_tied=True),
    _qwen3("8B", 8_190_735_360, (36, 4096, 32, 8, 12_288)),
    _qwen3("14B", 14_768_307_200, (40, 5120, 40, 8, 17_408)),
    _qwen3("32B", 32_762_123_264, (64, 5120, 64, 8, 25_600)),
    _qwen3(
        "30B-A3B",
        30_532_122_624,
        (48, 2048, 32, 4, 6144),
        experts=Experts(count=128, active=8, intermediate=768),
    ),
    _qwen3(
        "235B-A22B",
        235_093_634_560,
        (94, 4096, 64, 4, 12_288),
        experts=Experts(count=128, active=8, intermediate=1536),
    ),
    _llama3("Llama-3.1-8B-Instruct", 8_030_261_248, (32, 4096, 32, 128, 14_336)),
    _llama3("Llama-3.1-70B-Instruct", 70_553_706_496, (80, 8192, 64, 128, 28_672)),
    _llama3("Llama-3.1-405B-Instruct", 405_853_388_800, (126, 16_384, 128, 128, 53_248)),
    _llama3("Llama-3.2-1B-Instruct", 1_235_814_400, (16, 2048, 32, 64, 8192), is_tied=True),
    _llama3("Llama-3.2-3B-Instruct", 3_212_749_824, (28, 3072, 24, 128, 8192), is_tied=True),
    _llama3("Llama-3.3-70B-Instruct", 70_553_706_496, (80, 8192, 64, 128, 28_672)),
    _mixtral("8x7B", 46_702_792_704, (32, 4096, 32, 14_336, 32_768)),
    _mixtral("8x22B", 140_620_634_112, (56, 6144, 48, 16_384, 65_536)),
    _deepseek_v3("DeepSeek-V3"),
    _deepseek_v3("DeepSeek-R1"),
    _gpt_oss("20b", 20_910_000_000, layers=24, experts=32),
    _gpt_oss("120b", 116_830_000_000, layers=36, experts=128),
    _gemma("gemma-2-2b-it", 2_614_341_888, (26, 2304, 8, 4, 256, 9216, 8192), window=_GEMMA_2, vocabulary=256_000),
    _gemma("gemma-2-9b-it", 9_241_705_984, (42, 3584, 16, 8, 256, 14_336, 8192), window=_GEMMA_2, vocabulary=256_000),
    _gemma(
        "gemma-2-27b-it", 27_227_128_320, (46, 4608, 32, 16, 128, 36_864, 8192), window=_GEMMA_2, vocabulary=256_000
    ),
    _gemma(
        "gemma-3-4b-it",
        3_884_000_000,
        (34, 2560, 8, 4, 256, 10_240, 131_072),
        window=_GEMMA_3,
        vocabulary=262_208,
        source=_GEMMA_3_REPORT,
    ),
    _gemma(
        "gemma-3-12b-it",
        11_771_000_000,
        (48, 3840, 16, 8, 256, 15_360, 131_072),
        window=_GEMMA_3,
        vocabulary=262_208,
        source=_GEMMA_3_REPORT,
    ),
    _gemma(
        "gemma-3-27b-it",
        27_016_000_000,
        (62, 5376, 32, 16, 128, 21_504, 131_072),
        window=_GEMMA_3,
        vocabulary=262_208,
        source=_GEMMA_3_REPORT,
    ),
    ModelConfig(
        name="mistralai/Mistral-7B-Instruct-v0.3",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=8,
        head_dim=128,
        intermediate=14_336,
        vocabulary=32_768,
        context_tokens=32_768,
        parameters=7_248_023_552,
    ),
    _small_llama("SmolLM2-135M-Instruct", 134_515_008, (30, 576, 9, 3, 1536)),
    _small_llama("SmolLM2-1.7B-Instruct", 1_711_376_384, (24, 2048, 32, 32, 8192)),
)


_TUNING = re.compile(r"-(instruct|it|chat)(-v[0-9.]+)?$")


def short_name(name: str) -> str:
    """Return a model's name without its owner, its tuning and its case: `qwen2.5-32b`."""
    return _TUNING.sub("", name.rsplit("/", 1)[-1].lower())


_BY_NAME: Mapping[str, ModelConfig] = MappingProxyType({short_name(config.name): config for config in MODEL_CONFIGS})


def find_model_config(name: str) -> ModelConfig | None:
    """Return the shape of a model by its name on the Hub or its short name; None if it is not in the catalogue."""
    return _BY_NAME.get(short_name(name))


def model_config_names() -> tuple[str, ...]:
    """Return all short names, sorted, for messages."""
    return tuple(sorted(_BY_NAME))
