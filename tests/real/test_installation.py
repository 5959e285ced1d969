"""The installer of the real engines, without installing one."""

import re
from pathlib import Path

import pytest
from tests.real import installation
from tests.real.installation import InstallRecipe, NotInstallableError, ensure_installed, environment_folder
from tests.real.recipes import RECIPES
from tests.real.serving import ServeRecipe

from headrace.domain.endpoint import EngineKind


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_package_is_pinned(recipe: ServeRecipe) -> None:
    """What is installed today is what is installed in a year."""
    for name in ("requirements.txt", "engine.txt"):
        lines = (recipe.install.folder / name).read_text().splitlines()
        loose = [
            line for line in lines if line and not line.startswith("#") and not re.match(r"[\w.\[\],-]+==\S", line)
        ]
        assert loose == []


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_the_engine_is_of_the_version_that_the_recipe_names(recipe: ServeRecipe) -> None:
    """Environment, figures and recordings carry the version that really runs."""
    first = (recipe.install.folder / "engine.txt").read_text().splitlines()[0]
    assert first.endswith(f"=={recipe.install.version}")


def recipe_of(folder: Path, requirements: str) -> InstallRecipe:
    (folder / "requirements.txt").write_text(requirements)
    (folder / "engine.txt").write_text("")
    return InstallRecipe(
        kind=EngineKind.VLLM, version="0", folder=folder, finish=lambda _: None, import_check="import json"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pins; the cache is in another one."""
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    pins = tmp_path / "pins"
    pins.mkdir()
    return pins


@pytest.mark.slow
def test_what_cannot_be_installed_says_why_and_goes_on_where_it_stopped(folder: Path) -> None:
    """The reason is pip's own; with other pins the same environment is used, and is not touched once it is complete."""
    with pytest.raises(
        NotInstallableError, match=r"installing vllm's requirements failed \(exit 1\)[\s\S]*missing\.whl"
    ):
        ensure_installed(recipe_of(folder, "missing @ file:///nowhere/missing.whl\n"))
    recipe = recipe_of(folder, "")
    made_ns = (environment_folder(recipe) / "pyvenv.cfg").stat().st_mtime_ns
    python = ensure_installed(recipe)
    assert python.exists()
    marked = sorted(path.name for path in environment_folder(recipe).glob(".installed-*"))
    assert len(marked) == 1
    (environment_folder(recipe) / "pyvenv.cfg").touch()
    changed_ns = (environment_folder(recipe) / "pyvenv.cfg").stat().st_mtime_ns
    assert ensure_installed(recipe) == python
    assert (environment_folder(recipe) / "pyvenv.cfg").stat().st_mtime_ns == changed_ns > made_ns


def test_an_installation_without_disk_is_not_begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes are not fetched to a disk that cannot hold them."""
    monkeypatch.setattr(installation, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(NotInstallableError, match="GiB of disk"):
        ensure_installed(recipe_of(folder, ""))
