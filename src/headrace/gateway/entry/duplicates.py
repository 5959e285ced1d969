"""Finds duplicate top-level keys of a JSON object: parsers differ on which one wins, so none may pass.

The common case costs one pass over the already decoded fields: a compact object has exactly one possible length, so a
body of that length has no room for a second occurrence of any key.
"""

import json
from collections.abc import Mapping

import msgspec


def has_duplicate_keys(body: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Say whether the object `body` names a top-level key twice; `fields` is its decoding (last one won)."""
    compact_bytes = 1 + len(fields)  # braces and commas
    for name, value in fields.items():
        compact_bytes += len(name) + 3 + len(memoryview(value))  # quotes and colon
    if len(body) == compact_bytes:
        return False
    return _has_duplicate_by_scan(body)


def _has_duplicate_by_scan(body: bytes) -> bool:
    """The exact answer, for bodies with white space, escaped or non-ASCII keys, or duplicates."""
    duplicates: list[bool] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        # The outermost object is closed last: its verdict is the last one noted.
        duplicates.append(len({name for name, _ in pairs}) != len(pairs))

    json.loads(body, object_pairs_hook=note)
    return bool(duplicates) and duplicates[-1]
