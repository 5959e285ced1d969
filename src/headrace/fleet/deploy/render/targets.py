"""The one table of targets: the function that renders it, imported on use."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headrace.fleet.deploy.render.core.model import Rendered, RenderRequest


class Target(StrEnum):
    """What can be written for."""

    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One row of the table."""

    function: str
    """`module:function`, a `Callable[[RenderRequest], Rendered]`."""
    separator: str | None
    """What stands between files on stdout; None: a line of comment with the file's path."""


_PACKAGE = "headrace.fleet.deploy.render"
TARGETS = MappingProxyType(
    {
        Target.DOCKER: TargetRow(f"{_PACKAGE}.docker.script:render_docker", None),
        Target.COMPOSE: TargetRow(f"{_PACKAGE}.compose.project:render_compose", None),
        Target.SYSTEMD: TargetRow(f"{_PACKAGE}.systemd.units:render_systemd", None),
        Target.KUBERNETES: TargetRow(f"{_PACKAGE}.kubernetes.manifests:render_kubernetes", "---\n"),
    }
)


def render(target: Target, request: RenderRequest) -> Rendered:
    """Render `request` for one target."""
    module, _, name = TARGETS[target].function.partition(":")
    return cast("Callable[[RenderRequest], Rendered]", getattr(import_module(module), name))(request)


def joined_text(target: Target, rendered: Rendered) -> str:
    """Return all files as one stream, for stdout; a single file is itself."""
    files, separator = [file for file in rendered.files if not file.is_only_split], TARGETS[target].separator
    if len(files) == 1:
        return files[0].text
    if separator is not None:
        return separator.join(file.text for file in files)
    return "\n".join(f"# ---- {file.path}\n{file.text}" for file in files)
