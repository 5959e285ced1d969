"""`--set limits.requests_per_min=100` of tenants and keys: a part of a section, in the words of headrace.yaml."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from headrace.declaration.overrides import NOWHERE, apply_overrides
from headrace.declaration.yaml_tree import Mapping, to_value

SetSectionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="A key as headrace.yaml has it, such as limits.requests_per_min=600 or budget.per_day=20; null takes it "
        "out. Repeat for more.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check and show what would be, and change nothing.")]


def read_section(texts: Sequence[str] | None) -> dict[str, Any]:
    """Put `key.path=value` texts together. Raises: DeclarationError."""
    root = Mapping(mark=NOWHERE)
    apply_overrides(root, texts or ())
    return to_value(root)
