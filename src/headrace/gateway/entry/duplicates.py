"""Finds duplicate top-level keys of a JSON object: parsers differ on which one wins, so none may pass.

The common case costs one pass over the already decoded fields: a compact object has exactly one possible length, so a
body of that length has no room for a second occurrence of any key.
"""

import re
from collections.abc import Mapping

import msgspec

SHORT_BODY_BYTES = 8192
"""Up to here, encoding the fields again is the quickest way to their length. Measured."""
_KEY = re.compile(rb'[ \n\r\t]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \n\r\t]*+:[ \n\r\t]*+', re.DOTALL)
_NEXT = re.compile(rb"[ \n\r\t]*+([,}])")
_decode_key = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def has_duplicate_keys(body: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """Say whether the object `body` names a top-level key twice; `fields` is its decoding (last one won)."""
    if len(body) < SHORT_BODY_BYTES:
        return len(body) != len(_encode(fields)) and body != _spaced(fields) and _has_duplicate_by_scan(body, fields)
    # A long body is not copied: each field takes quotes, colon and comma; the opening brace is one byte more.
    sizes = sum([len(name) + len(memoryview(value)) for name, value in fields.items()])
    return len(body) != 1 + 4 * len(fields) + sizes and _has_duplicate_by_scan(body, fields)


def _spaced(fields: Mapping[str, msgspec.Raw]) -> bytes:
    """The object with a space after each comma and colon, as Python's json writes it: of every key once."""
    return b"{%b}" % b", ".join([b'"%b": %b' % (name.encode(), value) for name, value in fields.items()])


def _has_duplicate_by_scan(body: bytes, fields: Mapping[str, msgspec.Raw]) -> bool:
    """The exact answer, for bodies with white space, escaped or non-ASCII keys, or duplicates: from key to key, over
    each value as it was decoded. One that stands there otherwise was overwritten by a second.
    """
    place = body.index(b"{") + 1
    seen = 0
    while (key := _KEY.match(body, place)) is not None:
        seen += 1
        value = fields.get(_decode_key(key[1]))
        if value is None or seen > len(fields) or not body.startswith(memoryview(value), key.end()):
            return True
        after = _NEXT.match(body, key.end() + len(memoryview(value)))
        if after is None:
            return True
        place = after.end()
    return seen != len(fields)
