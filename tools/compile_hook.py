"""A build hook: with HEADRACE_COMPILE=1 the modules of the hot path go into the wheel compiled by mypyc as well.

Which modules, and with which tools, stands in pyproject.toml (`tool.hatch.build.targets.wheel.hooks.custom`); why, in
docs/decisions/0008. Without the variable, and for editable installs, nothing happens: the wheel is pure Python.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASKS = "HEADRACE_COMPILE"
TYPES_FROM = "HEADRACE_COMPILE_PYTHON"
"""A Python in whose environment the dependencies are installed, where that of the build has none: their types are
needed to compile."""
GROUP = "headrace_compiled"
"""Of the modules that are compiled together, so that they call each other directly."""


class CompileHook(BuildHookInterface):
    """Found by hatchling."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return [*self.config["requires"], *self.metadata.core.dependencies] if is_asked() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not is_asked() or version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-compile-")
        sources = [f"src/headrace/{module}" for module in self.config["modules"]]
        for built, place in compile_sources(Path(self.root), sources, Path(self.folder.name)).items():
            build_data["force_include"][str(built)] = place
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if is_asked() and version != "editable":
            self.folder.cleanup()


def is_asked() -> bool:
    return os.environ.get(ASKS, "") not in ("", "0")


def compile_sources(root: Path, sources: list[str], folder: Path) -> dict[Path, str]:
    """Compile in `folder`. Returns each built file with its place in the wheel."""
    from mypyc.build import mypycify  # not installed where nothing is compiled
    from setuptools import Distribution

    types_from = ["--python-executable", os.environ[TYPES_FROM]] if os.environ.get(TYPES_FROM) else []
    before = Path.cwd()
    os.chdir(root)  # mypy finds its settings, and the names of modules, from there
    try:
        extensions = mypycify(
            [f"--cache-dir={folder / 'types'}", *types_from, *sources],
            target_dir=str(folder / "c"),
            group_name=GROUP,
            opt_level="2",
            debug_level="0",
        )
        command = Distribution({"name": "headrace", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "objects")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    library = folder / "lib"
    return {path: str(path.relative_to(library)) for path in library.rglob("*") if path.is_file()}


if __name__ == "__main__":
    sys.exit("not a program: a build hook; HEADRACE_COMPILE=1 python -m pip install . runs it")
