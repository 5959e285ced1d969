"""Old names of llama.cpp's server. Builds have numbers; `last` and `gone` are the builds or dates that were read."""

from functools import partial

from headrace.domain.endpoint import EngineKind
from headrace.engines.names import Change, NameKind, OldName

_README = "examples/server/README.md@53dd4be (March 2025); flags and metrics of b11434 and b11549"

flag = partial(
    OldName, engine=EngineKind.LLAMACPP, kind=NameKind.FLAG, source=_README, last="March 2025", gone="b11434"
)
metric = partial(
    OldName,
    engine=EngineKind.LLAMACPP,
    kind=NameKind.METRIC,
    source=_README,
    last="March 2025",
    gone="b11549",
    change=Change.REMOVED,
)

OLD_NAMES = (
    metric(old="llamacpp:kv_cache_usage_ratio", note="GET /slots shows how much of each slot's context is used"),
    metric(old="llamacpp:kv_cache_tokens", note="GET /slots shows the tokens of each slot"),
    flag(old="--mlock", now=("--load-mode",), change=Change.REPLACED, note="with the value mlock"),
    flag(old="--no-mmap", now=("--load-mode",), change=Change.REPLACED, note="with the value none"),
    flag(old="--dump-kv-cache", change=Change.REMOVED),
    flag(old="--verbose-prompt", change=Change.REMOVED),
)
