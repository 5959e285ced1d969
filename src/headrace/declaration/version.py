"""`version:` of headrace.yaml: which formats this headrace reads, and how it brings older ones up to date."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from headrace.declaration.problem import Problem, Severity
from headrace.declaration.validate import Located
from headrace.declaration.yaml_tree import Mapping as TreeMapping
from headrace.declaration.yaml_tree import Scalar

CURRENT_VERSION = 1

MIGRATIONS: Mapping[int, Callable[[TreeMapping], None]] = MappingProxyType({})
"""Format version -> what rewrites its tree, in place, to the next version. Empty: version 1 is the first."""


def version_problem(tree: Located) -> Problem | None:
    """Migrate an older tree in place; say what is wrong with its version, None where nothing is."""
    node = tree.root.entries.get("version")
    if node is None:
        return tree.problem(
            Severity.WARNING, ("version",), "is missing, version 1 is assumed", f"Write version: {CURRENT_VERSION}."
        )
    version = node.value if isinstance(node, Scalar) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return tree.problem(Severity.ERROR, ("version",), "is not a format version", f"Write {CURRENT_VERSION}.")
    if version > CURRENT_VERSION:
        return tree.problem(
            Severity.ERROR,
            ("version",),
            "was written for a newer headrace",
            f"This one reads up to version {CURRENT_VERSION}: upgrade headrace.",
        )
    while version < CURRENT_VERSION:
        MIGRATIONS[version](tree.root)
        version += 1
    return None
