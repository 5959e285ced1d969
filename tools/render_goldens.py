"""Writes tests/golden/render/ anew: what `headrace render` makes of each case. Run by `make goldens`; read the diff.

Without arguments all targets, else those named.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.harness.kubernetes_cases import iter_kubernetes_goldens
from tests.harness.render_cases import GPU_ENGINES, REFERENCE, ROOT, case_names, declaration_text, rendered_text

from headrace.fleet.deploy.render.targets import Target

GOLDEN = ROOT / "tests" / "golden" / "render"
SUFFIXES = {Target.DOCKER: "sh", Target.COMPOSE: "yaml", Target.SYSTEMD: "txt", Target.KUBERNETES: "yaml"}
"""systemd's is one text of several files."""


def iter_goldens(target: Target) -> Iterator[tuple[str, str]]:
    """Yield name and text of each golden file of `target`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "headrace.yaml"
        for engine, shape in case_names():
            path.write_text(declaration_text(engine, shape))
            yield f"{engine}-{shape}.{SUFFIXES[target]}", rendered_text(target, path)
        if target is Target.KUBERNETES:
            yield from iter_kubernetes_goldens(Path(folder))
    for engine in GPU_ENGINES:
        yield (
            f"{engine}-reference.{SUFFIXES[target]}",
            rendered_text(target, REFERENCE, (f"pools.main.engine={engine}",)),
        )


def main(names: list[str]) -> None:
    """Write the goldens of the targets named."""
    for target in map(Target, names or [target.value for target in Target]):
        folder = GOLDEN / target.value
        folder.mkdir(parents=True, exist_ok=True)
        wanted = dict(iter_goldens(target))
        for stale in {path.name for path in folder.iterdir()} - set(wanted):
            (folder / stale).unlink()
        for name, text in wanted.items():
            (folder / name).write_text(text)
        print(f"{folder.relative_to(ROOT)}: {len(wanted)} files")


if __name__ == "__main__":
    main(sys.argv[1:])
