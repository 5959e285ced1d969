"""Read a Hugging Face `config.json` into an `Architecture`: dense, grouped-query, MLA, windows, mixtures, hybrids."""

from collections.abc import Mapping
from typing import Any, cast

from headrace.sizing.architecture import (
    Architecture,
    CacheLayers,
    LayerKind,
    Parameters,
    UnknownArchitectureError,
)
from headrace.sizing.quantization import read_weight_format

QKV_BIAS = frozenset(("qwen", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_vl_text"))
"""Families whose query, key and value projections have biases though their config has no key for it. Source: the
checkpoints' own tensor names."""
KNOWN = frozenset(
    "llama mistral mixtral qwen qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text gemma gemma2 "
    "gemma3_text gpt_oss deepseek_v2 deepseek_v3 kimi_k2 granite granitemoe qwen2_vl qwen2_5_vl phi3 olmo2".split()
)
"""Families whose count of parameters was compared with a published checkpoint or follows the same layout."""
WINDOW_EVERY = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2}
"""Every n-th layer sees all tokens, where the config lists no layer_types. Source: the families' modelling code."""
UNKNOWN_STATE = ("mamba_d_state", "ssm_state_size", "hybrid_override_pattern", "rwkv_head_size", "linear_attn_config")
"""Keys of recurrent layers whose size is not known here: refused, not guessed."""
CONV_BYTES = 2
"""The convolution's state is kept in the computing precision."""


def read_hf_config(config: Mapping[str, Any]) -> Architecture:
    """Return the architecture that a config.json describes.

    Raises: UnknownArchitectureError, which names what is missing or not known.
    """
    text = _text_part(config)
    family = str(text.get("model_type") or config.get("model_type") or "")
    for key in UNKNOWN_STATE:
        if text.get(key) is not None:
            raise UnknownArchitectureError(f"{family}: layers described by {key} are of a kind that is not known here")
    reader = _Reader(family, text)
    dtype = str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or config.get("dtype") or "")
    return Architecture(
        family=family,
        layers=reader.layers,
        hidden=reader.hidden,
        heads=reader.heads,
        kv_heads=reader.kv_heads,
        intermediate=reader.active_intermediate,
        vocabulary=reader.vocabulary,
        context_tokens=_int(text, "max_position_embeddings") or None,
        cache=reader.cache(),
        parameters=reader.parameters(_vision(config, reader.hidden)),
        weights=read_weight_format({**text, **config}, dtype or "bfloat16"),
        has_experts=reader.expert_count > 0,
        is_assumed=family not in KNOWN,
    )


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a model that also sees or hears."""
    for key in ("text_config", "language_config", "llm_config"):
        part = config.get(key)
        if isinstance(part, Mapping) and "num_hidden_layers" in part:
            return cast("Mapping[str, Any]", part)
    return config


def _int(text: Mapping[str, Any], *names: str) -> int:
    """The first key that holds a number; 0 where none does."""
    for name in names:
        value = text.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
    return 0


def _vision(config: Mapping[str, Any], text_hidden: int) -> int:
    """Parameters of a ViT-like image encoder and its projector."""
    part = config.get("vision_config")
    if not isinstance(part, Mapping):
        return 0
    said = cast("Mapping[str, Any]", part)
    hidden, inner = _int(said, "hidden_size", "embed_dim"), _int(said, "intermediate_size")
    layers = _int(said, "num_hidden_layers", "depth")
    patch, image = _int(said, "patch_size"), _int(said, "image_size")
    positions = (image // patch) ** 2 if patch and image else 0
    blocks = layers * (4 * hidden * hidden + 2 * hidden * (inner or 4 * hidden))
    return blocks + hidden * (3 * patch * patch + positions) + hidden * text_hidden


class _Reader:
    """One text model's config, its keys under the names of every family."""

    def __init__(self, family: str, text: Mapping[str, Any]) -> None:
        self._family, self._text = family, text
        self.layers = self._need("num_hidden_layers", "n_layer", "num_layers")
        self.hidden = self._need("hidden_size", "n_embd", "d_model")
        self.heads = self._need("num_attention_heads", "n_head")
        self.kv_heads = _int(text, "num_key_value_heads", "num_kv_heads") or self.heads
        self.head_dim = _int(text, "head_dim", "kv_channels") or self.hidden // self.heads
        self.vocabulary = self._need("vocab_size")
        self.expert_count = _int(text, "num_experts", "num_local_experts", "n_routed_experts")
        self.kv_rank = _int(text, "kv_lora_rank")
        self.query_rank = _int(text, "q_lora_rank")
        self.window_tokens = _int(text, "sliding_window") if text.get("use_sliding_window", True) else 0
        self.kinds = self._kinds()

    def _need(self, *names: str) -> int:
        found = _int(self._text, *names)
        if not found:
            raise UnknownArchitectureError(f"{self._family or 'the config'} has no {names[0]}")
        return found

    @property
    def dense_intermediate(self) -> int:
        inner = _int(self._text, "intermediate_size", "ffn_hidden_size")
        return inner // 2 if self._family == "qwen" else inner  # the first Qwen counts gate and up together

    @property
    def expert_intermediate(self) -> int:
        return _int(self._text, "moe_intermediate_size", "expert_intermediate_size", "intermediate_size")

    @property
    def shared_intermediate(self) -> int:
        """Width of the experts that every token passes."""
        own = _int(self._text, "shared_expert_intermediate_size", "shared_intermediate_size")
        return own or _int(self._text, "n_shared_experts") * self.expert_intermediate

    @property
    def active_intermediate(self) -> int:
        if not self.expert_count:
            return self.dense_intermediate
        active = _int(self._text, "num_experts_per_tok", "experts_per_token", "moe_topk") or 1
        return max(self.dense_intermediate, active * self.expert_intermediate + self.shared_intermediate)

    @property
    def moe_layers(self) -> int:
        if not self.expert_count:
            return 0
        first, step = _int(self._text, "first_k_dense_replace"), _int(self._text, "decoder_sparse_step") or 1
        dense = self._text.get("mlp_only_layers") or ()
        sparse = (number for number in range(first, self.layers) if (number + 1) % step == 0 and number not in dense)
        return sum(1 for _ in sparse)

    def _kinds(self) -> list[LayerKind]:
        """The kind of every layer, in order."""
        if self.kv_rank and self._text.get("use_mla", True):
            return [LayerKind.LATENT] * self.layers
        listed = self._text.get("layer_types")
        if isinstance(listed, list):
            return [self._kind_of(str(name)) for name in cast("list[object]", listed)]
        if every := _int(self._text, "full_attention_interval"):
            return self._every(every, LayerKind.RECURRENT)
        if not self.window_tokens:
            return [LayerKind.FULL] * self.layers
        every = _int(self._text, "sliding_window_pattern", "_sliding_window_pattern") or WINDOW_EVERY.get(
            self._family, 0
        )
        return self._every(every, LayerKind.WINDOW) if every else [LayerKind.WINDOW] * self.layers

    def _every(self, every: int, otherwise: LayerKind) -> list[LayerKind]:
        return [LayerKind.FULL if (number + 1) % every == 0 else otherwise for number in range(self.layers)]

    def _kind_of(self, name: str) -> LayerKind:
        if name in ("full_attention", "attention"):
            return LayerKind.FULL
        if name in ("sliding_attention", "chunked_attention"):
            return LayerKind.WINDOW if self.window_tokens else LayerKind.FULL
        if name == "linear_attention" and _int(self._text, "linear_num_value_heads"):
            return LayerKind.RECURRENT
        raise UnknownArchitectureError(f"{self._family}: layers of type {name} are not known here")

    def cache(self) -> tuple[CacheLayers, ...]:
        made = {
            LayerKind.FULL: {"kv_heads": self.kv_heads, "key_dim": self.head_dim, "value_dim": self.head_dim},
            LayerKind.LATENT: {"key_dim": self.kv_rank + _int(self._text, "qk_rope_head_dim")},
            LayerKind.RECURRENT: {"state_bytes": self._state_bytes()},
        }
        made[LayerKind.WINDOW] = {**made[LayerKind.FULL], "window_tokens": self.window_tokens}
        return tuple(
            CacheLayers(kind=kind, count=count, **made[kind]) for kind in LayerKind if (count := self.kinds.count(kind))
        )

    @property
    def _linear_widths(self) -> tuple[int, int]:
        """Keys' and values' width of a linear-attention layer."""
        keys = _int(self._text, "linear_num_key_heads") * _int(self._text, "linear_key_head_dim")
        return keys, _int(self._text, "linear_num_value_heads") * _int(self._text, "linear_value_head_dim")

    def _state_bytes(self) -> int:
        """A gated delta net keeps a matrix for each value head, and the last inputs of its convolution."""
        keys, values = self._linear_widths
        number_bytes = 4 if self._text.get("mamba_ssm_dtype", "float32") == "float32" else 2
        convolution = (2 * keys + values) * max(0, _int(self._text, "linear_conv_kernel_dim") - 1)
        return values * _int(self._text, "linear_key_head_dim") * number_bytes + convolution * CONV_BYTES

    def parameters(self, vision: int) -> Parameters:
        attention = self._attention()
        recurrent, recurrent_plain = self._recurrent()
        recurrent_layers = self.kinds.count(LayerKind.RECURRENT)
        attending = self.layers - recurrent_layers
        dense = 3 * self.hidden * self.dense_intermediate * (self.layers - self.moe_layers)
        shared = 3 * self.hidden * self.shared_intermediate * self.moe_layers
        bias = (self.heads + 2 * self.kv_heads) * self.head_dim if self._has_bias else 0
        norms = (4 if self._family in ("gemma2", "gemma3_text") else 2) * self.hidden
        router = self.moe_layers * self.hidden * self.expert_count
        ties = bool(self._text.get("tie_word_embeddings", self._family.startswith("gemma")))
        return Parameters(
            linear=attending * attention + recurrent_layers * recurrent + dense + shared,
            experts=self.moe_layers * self.expert_count * 3 * self.hidden * self.expert_intermediate,
            replicated=attending * self._compressions(),
            embedding=self.vocabulary * self.hidden * (1 if ties else 2),
            plain=self.layers * norms + attending * bias + router + recurrent_layers * recurrent_plain + self.hidden,
            vision=vision,
        )

    @property
    def _has_bias(self) -> bool:
        return bool(self._text.get("attention_bias", self._text.get("qkv_bias", self._family in QKV_BIAS)))

    def _attention(self) -> int:
        """Matrices of one attention layer that are split over a tensor group."""
        if LayerKind.LATENT not in self.kinds:
            queries = self.heads * (2 if self._text.get("attn_output_gate") or self._family == "qwen3_next" else 1)
            return self.hidden * self.head_dim * (queries + self.heads + 2 * self.kv_heads)
        nope, rope = _int(self._text, "qk_nope_head_dim"), _int(self._text, "qk_rope_head_dim")
        values = _int(self._text, "v_head_dim")
        query = (self.query_rank or self.hidden) * self.heads * (nope + rope)
        return query + self.kv_rank * self.heads * (nope + values) + self.heads * values * self.hidden

    def _compressions(self) -> int:
        """MLA's matrices to the latent vectors, which every device holds whole."""
        if LayerKind.LATENT not in self.kinds:
            return 0
        return self.hidden * (self.query_rank + self.kv_rank + _int(self._text, "qk_rope_head_dim"))

    def _recurrent(self) -> tuple[int, int]:
        """Matrices of one linear-attention layer, and what of it is not quantized."""
        keys, values = self._linear_widths
        matrices = self.hidden * (2 * keys + 2 * values) + values * self.hidden
        gates = 2 * self.hidden * _int(self._text, "linear_num_value_heads")
        return matrices, gates + (2 * keys + values) * _int(self._text, "linear_conv_kernel_dim")
