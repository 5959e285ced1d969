"""Finds duplicate top-level keys of a JSON object: parsers differ on which one wins, so none may pass.

The common case costs one pass over the already decoded fields: a compact object has exactly one possible length, so a
body of that length has no room for a second occurrence of any key.
"""

import json
from collections.abc import Mapping

import msgspec

SHORT_BODY_BYTES = 8192
"""Up to here, encoding the fields again is the quickest way to their length. Measured."""
_encode = msgspec.json.Encoder().encode


def has_duplicate_keys(body: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Say whether the object `body` names a top-level key twice; `fields` is its decoding (last one won)."""
    if len(body) < SHORT_BODY_BYTES:
        is_compact = len(body) == len(_encode(fields))
    else:  # a long body is not copied: each field takes quotes, colon and comma; the opening brace is one byte more
        sizes = sum([len(name) + len(memoryview(value)) for name, value in fields.items()])
        is_compact = len(body) == 1 + 4 * len(fields) + sizes
    return not is_compact and body != _spaced(fields) and _has_duplicate_by_scan(body)


def _spaced(fields: Mapping[str, msgspec.Raw]) -> bytes:
    """The object with a space after each comma and colon, as Python's json writes it: of every key once."""
    return b"{%b}" % b", ".join([b'"%b": %b' % (name.encode(), value) for name, value in fields.items()])


def _has_duplicate_by_scan(body: bytes) -> bool:
    """The exact answer, for bodies with white space, escaped or non-ASCII keys, or duplicates."""
    duplicates: list[bool] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        # The outermost object is closed last: its verdict is the last one noted.
        duplicates.append(len({name for name, _ in pairs}) != len(pairs))

    json.loads(body, object_pairs_hook=note)
    return bool(duplicates) and duplicates[-1]
