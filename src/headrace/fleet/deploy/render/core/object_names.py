"""Names of pools as names of containers, hosts, units and objects: lower case, digits and hyphens."""

import re
from collections.abc import Iterator

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.model import RenderNote, Severity

LONGEST = 40
"""So that namespace, number and suffix still fit into the 63 characters of a DNS label."""


def object_name(name: str) -> str:
    """Write a declared name as a DNS label."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def name_notes(declaration: Declaration) -> Iterator[RenderNote]:
    """Yield names of pools that cannot stand beside each other, or not at all."""
    taken: dict[str, str] = {"gateway": "", "redis": "", "postgres": "", "models": "", "fetch": ""}
    for pool in declaration.pools:
        label = object_name(pool)
        if label in taken:
            other = f"of pool {taken[label]}" if taken[label] else "headrace's own"
            yield _error(pool, f"would be named {label}, which is {other}", "Rename one")
        elif not label or len(label) > LONGEST:
            yield _error(pool, f"makes no name of 1 to {LONGEST} letters, digits and hyphens", "Rename it")
        taken[label] = pool


def _error(pool: str, message: str, hint: str) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=f"pools.{pool}", message=message, hint=hint)
