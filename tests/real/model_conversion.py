"""Turns the bundled GGUF file into a Hugging Face folder, which vLLM and SGLang load: `convert(gguf_path, folder)`.

Reads and writes the formats themselves, so that neither PyTorch nor transformers is needed. Only for the Llama
architecture with a byte-level BPE tokenizer, which is what the bundled model is.
"""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]

CONTROL_TOKEN = 3
"""Source: gguf.TokenType.CONTROL."""

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
COMPLETE_MARK = ".complete"


def convert(gguf_path: Path, folder: Path, *, chat_template: str) -> None:
    """Write `folder` (weights in bf16, configuration, tokenizer); does nothing where it is complete."""
    if (folder / COMPLETE_MARK).exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(gguf_path)
    facts: dict[str, Any] = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama" or facts["tokenizer.ggml.model"] != "gpt2":
        raise ValueError(f"{gguf_path}: only a Llama with a byte-level BPE tokenizer can be converted")
    with tempfile.TemporaryDirectory(prefix="converting-", dir=folder.parent) as unfinished_name:
        unfinished = Path(unfinished_name) / folder.name
        unfinished.mkdir()
        write_safetensors(unfinished / "model.safetensors", weights_of(reader, facts))
        for name, content in {
            "config.json": model_config(facts),
            "generation_config.json": generation_config(facts),
            "tokenizer.json": tokenizer(facts),
            "tokenizer_config.json": tokenizer_config(facts, chat_template),
        }.items():
            (unfinished / name).write_text(json.dumps(content, ensure_ascii=False, indent=1))
        (unfinished / COMPLETE_MARK).touch()
        os.rename(unfinished, folder)


def weights_of(reader: gguf.GGUFReader, facts: dict[str, Any]) -> dict[str, Weights]:
    """Every tensor under the name that transformers gives it."""
    heads = {
        "attn_q": facts["llama.attention.head_count"],
        "attn_k": facts["llama.attention.head_count_kv"],
    }
    named: dict[str, Weights] = {}
    for tensor in reader.tensors:
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in WHOLE_NAMES:
            named[WHOLE_NAMES[tensor.name]] = weights
            continue
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if found is None:
            raise ValueError(f"{tensor.name}: a tensor that this conversion does not know")
        layer, kind = found.groups()
        if kind in heads:
            weights = in_halves(weights, heads[kind])
        named[f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"] = weights
    return named


def in_halves(weights: Weights, heads: int) -> Weights:
    """Undo llama.cpp's order of rotary pairs (side by side) to that of transformers (first halves, second halves)."""
    rows, columns = weights.shape
    return weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def as_bf16(weights: Weights) -> bytes:
    """Rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(weights, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return rounded.astype("<u2").tobytes()


def write_safetensors(path: Path, named: dict[str, Weights]) -> None:
    """Write the safetensors format: length of the header, header as JSON, the tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, weights in named.items():
        end = offset + 2 * weights.size
        header[name] = {"dtype": "BF16", "shape": list(weights.shape), "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for weights in named.values():
            file.write(as_bf16(weights))


def model_config(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": float(f"{facts['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": facts["llama.rope.freq_base"],
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def generation_config(facts: dict[str, Any]) -> dict[str, Any]:
    return {f"{kind}_token_id": facts[f"tokenizer.ggml.{name}_token_id"] for kind, name in TOKEN_ROLES.items()}


TOKEN_ROLES = {"bos": "bos", "eos": "eos", "pad": "padding"}


def tokenizer(facts: dict[str, Any]) -> dict[str, Any]:
    """The tokenizers library's own format. Digits are split one by one: llama.cpp's pre-tokenizer "smollm"."""
    if facts["tokenizer.ggml.pre"] != "smollm":
        raise ValueError(f"pre-tokenizer {facts['tokenizer.ggml.pre']}: not known to this conversion")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    kinds: list[int] = facts["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, token in enumerate(tokens)
            if kinds[number] == CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": facts["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(facts: dict[str, Any], chat_template: str) -> dict[str, Any]:
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "chat_template": chat_template,
        **{f"{kind}_token": tokens[facts[f"tokenizer.ggml.{name}_token_id"]] for kind, name in TOKEN_ROLES.items()},
    }
