"""The real engines' command lines, as far as a simulated one can follow them.

So a pool's `runtime.command` may be `headrace sim engine --dialect vllm ... --`, and the supervisor runs it like the
engine. Flags that it does not know are ignored, with their values.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from headrace.engines.simulated.config import Role, TransferLoss

FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "host": ("--host",),
        "port": ("--port",),
        "served_model_name": ("--served-model-name", "--served_model_name", "--alias"),
        "context_tokens": ("--max-model-len", "--context-length", "--max_seq_len"),
        "max_sequences": ("--max-num-seqs", "--max-running-requests", "--max_batch_size", "--parallel"),
        "max_batched_tokens": ("--max-num-batched-tokens", "--max-prefill-tokens", "--max_num_tokens", "--batch-size"),
        "max_queued": ("--max-num-queued-reqs", "--max-queued-requests"),
        "tp": ("--tensor-parallel-size", "--tp-size", "--tensor_parallel_size", "--tp_size"),
        "pp": ("--pipeline-parallel-size", "--pp-size", "--pipeline_parallel_size", "--pp_size"),
        "shutdown_timeout": ("--shutdown-timeout",),
        "bootstrap_port": ("--disaggregation-bootstrap-port",),
        "role": ("--disaggregation-mode",),
        "kv_events": ("--kv-events-config",),
    }
)
"""Option of `headrace sim engine` -> the flags that mean it. Sources: the engines' --help."""

WHOLE = frozenset({"context_tokens", "max_sequences", "max_batched_tokens", "max_queued", "tp", "pp", "port"})
"""Options that are whole numbers, as `bootstrap_port` is."""

ROLES: Mapping[str, Role] = MappingProxyType(
    {
        "null": Role.BOTH,
        "prefill": Role.PREFILL,
        "decode": Role.DECODE,
        "kv_producer": Role.PREFILL,
        "kv_consumer": Role.DECODE,
        "kv_both": Role.BOTH,
    }
)
"""Values of SGLang's mode and of vLLM's `kv_role`."""

TRANSFER_CONFIG = "--kv-transfer-config"


def read_engine_flags(words: Sequence[str]) -> dict[str, object]:
    """What an engine's command line says, by option of `headrace sim engine`. The last of several wins.

    Raises: ValueError, naming the flag whose value is none.
    """
    names = {flag: option for option, flags in FLAGS.items() for flag in flags}
    found: dict[str, object] = {}
    for place, word in enumerate(words):
        flag, sign, value = word.partition("=")
        if not sign:
            value = words[place + 1] if place + 1 < len(words) else ""
        try:
            if flag == TRANSFER_CONFIG:
                found |= _transfer(value)
            elif (option := names.get(flag)) is not None:
                found[option] = _value(option, value)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{flag} {value!r} makes no sense") from error
    return found


def _value(option: str, text: str) -> object:
    if option in WHOLE or option == "bootstrap_port":
        return int(text)
    if option == "shutdown_timeout":
        return float(text)
    return ROLES[text] if option == "role" else text


def _transfer(text: str) -> dict[str, object]:
    config = msgspec.json.decode(text, type=dict[str, Any])
    policy = config.get("kv_load_failure_policy")
    loss = {} if policy is None else {"transfer_loss": TransferLoss(policy)}
    return {"role": ROLES[config.get("kv_role", "kv_both")], **loss}
