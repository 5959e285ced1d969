"""The one list of targets, in the order in which a round visits them."""

from pathlib import Path

from benchmarks.targets.contract import Target
from benchmarks.targets.direct import DirectTarget
from benchmarks.targets.headrace import HeadraceTarget
from benchmarks.targets.litellm import LiteLlmTarget
from benchmarks.targets.nginx import NginxTarget
from benchmarks.targets.rust_routers import rust_routers


def all_targets(headrace_python: Path | None = None, *, is_compiled: bool = False) -> dict[str, Target]:
    """Targets by kind; `headrace_python` runs headrace on another Python than this one, `is_compiled` compiles it."""
    targets: tuple[Target, ...] = (
        DirectTarget(),
        NginxTarget(),
        HeadraceTarget(headrace_python, is_compiled=is_compiled),
        *rust_routers(),
        LiteLlmTarget(),
    )
    return {target.kind: target for target in targets}
