"""What monitoring is given as YAML: plain, or as an object of Kubernetes."""

from collections.abc import Callable
from typing import Any

import yaml


def yaml_text(head: str, document: dict[str, Any]) -> str:
    """`head`: the comment that it begins with."""
    dump: Callable[..., str] = yaml.safe_dump  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # its stubs
    return head + dump(document, sort_keys=False, width=120, allow_unicode=True)


def object_metadata(name: str, namespace: str | None) -> dict[str, Any]:
    """An object's `metadata`; without a namespace it goes where it is applied."""
    return {"name": name} | ({} if namespace is None else {"namespace": namespace})
