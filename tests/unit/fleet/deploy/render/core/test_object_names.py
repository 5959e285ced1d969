"""Names of pools as names of hosts, containers and units."""

import pytest

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.object_names import LONGEST, name_notes, object_name


@pytest.mark.parametrize(
    ("declared", "expected"),
    [("main", "main"), ("Team_A.chat", "team-a-chat"), ("a/b:c@d", "a-b-c-d"), ("x-", "x"), ("7b", "7b")],
)
def test_a_declared_name_becomes_a_dns_label(declared: str, expected: str) -> None:
    """Lower case, digits and hyphens."""
    assert object_name(declared) == expected


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        (["a", "b"], []),
        (["a.b", "a_b"], ["pools.a_b would be named a-b, which is of pool a.b"]),
        (["gateway"], ["pools.gateway would be named gateway, which is headrace's own"]),
        (["x" * LONGEST], []),
        (
            ["x" * (LONGEST + 1)],
            [f"pools.{'x' * (LONGEST + 1)} makes no name of 1 to {LONGEST} letters, digits and hyphens"],
        ),
    ],
)
def test_names_that_cannot_stand_are_refused(pools: list[str], said: list[str]) -> None:
    """Two pools with one name, headrace's own names, and names too long."""
    declaration = Declaration.model_validate(
        {"models": {"m": {"source": "file:/srv/m"}}, "pools": {pool: {"model": "m"} for pool in pools}}
    )
    assert [f"{note.key} {note.message}" for note in name_notes(declaration)] == said
