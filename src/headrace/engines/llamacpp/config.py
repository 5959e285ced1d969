"""What the embedded engine's process is told: one JSON object on its command line."""

import msgspec

DEFAULT_PROMPT_CACHE_MIB = 256
"""RAM for prompts of slots that were given to others. llama.cpp's own default is 8192."""


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one llama.cpp server. `context_tokens` and the like are ReplicaSpec's."""

    model_path: str
    served_model: str
    host: str
    port: int
    context_tokens: int
    """Of one slot."""
    slots: int
    threads: int
    batch_tokens: int
    """Prompt tokens per step, logical and physical."""
    slot_dir: str
    is_embedding: bool = False
    pooling: str | None = None
    """`mean` for models that name no pooling of their own; None leaves it to the model."""
    chat_template: str | None = None
    http_threads: int = 512
    """Connections served at once, waiting ones included. llama.cpp's own number is a few more than its slots: with
    more requests than that, even `/health` waits until one is done (measured: 19 s behind 30 streams)."""
    prompt_cache_mib: int = DEFAULT_PROMPT_CACHE_MIB


EXIT_BAD_CONFIG = 2
EXIT_PORT_TAKEN = 3
EXIT_LOAD_FAILED = 4
"""Exit codes of the process, beside 0 for a stop that was asked for."""
