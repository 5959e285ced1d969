"""From a declaration's file to what is rendered: loaded for another machine, with its secrets left as references."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from headrace.declaration.deployment_sections import Deployment
from headrace.declaration.finding import Finding
from headrace.declaration.load import load_declaration
from headrace.declaration.model import Declaration
from headrace.domain.operator_error import UnknownNameError, WrongUsageError
from headrace.engines.declared import lint_engines
from headrace.fleet.deploy.render.core.model import RenderRequest


def make_request(
    path: Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[str] = (),
    namespace: str | None = None,
    pool: str | None = None,
) -> tuple[RenderRequest, tuple[str, ...]]:
    """Return the request, and warnings about the declaration.

    Raises: OperatorError.
    """
    loaded = load_declaration(
        path, environ=environ, is_elsewhere=True, overrides=overrides, checks=_checks, keeps_secrets=True
    )
    declaration = loaded.declaration
    if namespace is not None:
        declaration = declaration.model_copy(update={"deployment": _in_namespace(declaration, namespace)})
    if pool is not None and (pool not in declaration.pools or declaration.pools[pool].is_remote):
        own = [name for name, section in declaration.pools.items() if not section.is_remote]
        raise UnknownNameError(f"headrace runs no pool {pool}", hint=f"It runs: {', '.join(own) or 'none'}.")
    folder = loaded.path.parent if loaded.path is not None else Path.cwd()
    return RenderRequest(declaration=declaration, folder=str(folder), pool=pool), tuple(map(str, loaded.warnings))


def _checks(declaration: Declaration) -> Iterator[Finding]:
    """All that a local start checks, but for what only concerns the GPUs of this machine."""
    for finding in lint_engines(declaration):
        if finding.path[0] != "pools" or finding.path[2:] != ("replicas",):
            yield finding


def _in_namespace(declaration: Declaration, namespace: str) -> Deployment:
    try:
        return Deployment.model_validate({**declaration.deployment.model_dump(), "namespace": namespace})
    except ValidationError as error:
        raise WrongUsageError(
            f'"{namespace}" is no namespace', hint="Lower-case letters, digits and hyphens, at most 63."
        ) from error
