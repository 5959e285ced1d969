"""Keys that have another place now: files of earlier versions are read as if they had the new ones, with a warning."""

from collections.abc import Iterator

from headrace.declaration.problem import KeyPath, Severity
from headrace.declaration.validate import Located
from headrace.declaration.yaml_tree import Mapping

POOL_KEYS = {"slots": ("batching", "max_sequences"), "batch_tokens": ("batching", "batched_tokens")}
"""Within a pool: the former key, and where its value belongs."""


def move_renamed(tree: Located) -> Iterator[tuple[Severity, KeyPath, str, str]]:
    """Move former keys in place; yields severity, former path, message and hint for each."""
    pools = tree.root.entries.get("pools")
    if not isinstance(pools, Mapping):
        return
    for name, pool in pools.entries.items():
        if not isinstance(pool, Mapping):
            continue
        for former, (section, key) in POOL_KEYS.items():
            if former not in pool.entries:
                continue
            path = ("pools", name, former)
            holder = pool.entries.get(section)
            if holder is not None and (not isinstance(holder, Mapping) or key in holder.entries):
                yield Severity.ERROR, path, f"is given beside {section}.{key}, its name now", "Take one out."
                continue
            yield Severity.WARNING, path, f"is called {section}.{key} now", "Rename it."
            _move(pool, former, section, key)


def _move(pool: Mapping, former: str, section: str, key: str) -> None:
    mark = pool.key_marks[former]
    holder = pool.entries.get(section)
    if not isinstance(holder, Mapping):
        holder = Mapping(mark=mark)
        pool.entries[section] = holder
        pool.key_marks[section] = mark
    holder.entries[key] = pool.entries.pop(former)
    holder.key_marks[key] = mark
