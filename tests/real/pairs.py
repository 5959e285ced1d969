"""Two processes of a real engine, prefill and decode, and a third for whole requests where those two take none."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.harness.ports import free_port
from tests.real.installation import NotInstallableError, ensure_installed, ensure_model
from tests.real.serving import EXACT, RealEngine, ServeRecipe

from headrace.gateway.handover.core.events import Side


@dataclass(kw_only=True)
class EnginePair:
    """Its engines, of which a test may kill or stop any: `mend` brings it back."""

    recipe: ServeRecipe
    sides: dict[Side, RealEngine]
    whole: RealEngine
    """Answers whole requests: prefill itself where it can."""
    transfer_port: int
    """Prefill's: where SGLang's legs meet."""

    @property
    def prefill(self) -> RealEngine:
        return self.sides[Side.PREFILL]

    @property
    def decode(self) -> RealEngine:
        return self.sides[Side.DECODE]

    @property
    def engines(self) -> list[RealEngine]:
        """Each once."""
        return [*self.sides.values(), *([] if self.whole is self.prefill else [self.whole])]

    def whole_beside(self, side: Side) -> RealEngine:
        """Who answers whole requests when `side` does not."""
        return self.decode if self.whole is self.prefill and side is Side.PREFILL else self.whole

    def mend(self) -> float:
        """Start what is down, wait until all are ready, and return how long that took."""
        started_mono_s = time.monotonic()
        for engine in self.engines:
            if engine.process is None or engine.process.poll() is not None:
                engine.end()
                engine.launch()
        for engine in self.engines:
            engine.wait_until_ready()
        return time.monotonic() - started_mono_s

    def end(self) -> None:
        for engine in self.engines:
            engine.end()


@contextlib.contextmanager
def serving_pair(recipe: ServeRecipe) -> Iterator[EnginePair]:
    """Install where needed, start all, wait until ready; at the end nothing of it is left.

    Raises: NotInstallableError.
    """
    python, model = ensure_installed(recipe.install), ensure_model()
    check_pair_libraries(recipe, python)
    with tempfile.TemporaryDirectory(prefix=f"headrace-{recipe.kind}-pair-") as folder:
        pair = make_pair(recipe, python, model, Path(folder))
        try:
            pair.mend()
            yield pair
        finally:
            pair.end()


def check_pair_libraries(recipe: ServeRecipe, python: Path) -> None:
    """Raises: NotInstallableError where this machine lacks what the engine moves KV with."""
    needs = subprocess.run([str(python), "-c", recipe.pair.needs], capture_output=True, text=True)
    if needs.returncode != 0:
        last = needs.stderr.strip().splitlines()[-1]
        raise NotInstallableError(f"a pair of {recipe.kind} lacks a library: {last}. Install {recipe.pair.packages}.")


def make_pair(recipe: ServeRecipe, python: Path, model: Path, folder: Path) -> EnginePair:
    """Not started yet."""

    def engine(name: str) -> RealEngine:
        (folder / name).mkdir()
        return RealEngine(recipe, python, model, folder / name)

    sides = {side: engine(side.value) for side in Side}
    ports = {side: free_port() for side in Side}
    # SGLang's two name one meeting place, prefill's; each of vLLM's has its own.
    for side, one in sides.items():
        one.extra_args = tuple(recipe.pair.args(side, ports[side]))
        one.extra_env = recipe.pair.env(side, ports[side])
    whole = sides[Side.PREFILL] if recipe.pair.answers_whole else engine("whole")
    if not recipe.pair.answers_whole:
        whole.extra_args = EXACT
    return EnginePair(recipe=recipe, sides=sides, whole=whole, transfer_port=ports[Side.PREFILL])
