"""What of the gateway is rendered in a way that may surprise."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.model import RenderNote, Severity
from headrace.fleet.deploy.render.core.rendering import STATE_DIR
from headrace.fleet.deploy.render.core.site import Site


def gateway_notes(declaration: Declaration, site: Site) -> Iterator[RenderNote]:
    """Yield stores that would be lost, and stores that nobody would use."""
    database = declaration.ledger.database
    if site.is_container and database is not None and database.startswith("sqlite"):
        path = PurePosixPath("/") / database.partition("://")[2].lstrip("/")
        if not path.is_relative_to(STATE_DIR):
            yield _warning(
                "ledger.database",
                f"is a file of the container, and lost with it: only {STATE_DIR} is a volume",
                "Leave it out, put it there, or declare deployment.postgres",
            )
    if declaration.deployment.postgres is not None and database is not None:
        yield _warning("deployment.postgres", "is deployed and not used: ledger.database names another")
    if declaration.deployment.redis is not None and declaration.gateway.sharing.redis is not None:
        yield _warning("deployment.redis", "is deployed and not used: gateway.sharing.redis names another")


def _warning(key: str, message: str, hint: str | None = None) -> RenderNote:
    return RenderNote(severity=Severity.WARNING, key=key, message=message, hint=hint)
