"""Two requests' bodies compared without a gateway: as the gateway would, then to the byte, as both texts are here."""

import secrets

import msgspec

from headrace.cache_misses.core.compare import compare, shared_content
from headrace.cache_misses.core.fingerprint import FingerprintMaker
from headrace.cache_misses.core.segments import Segment, UnreadableError, segments_of
from headrace.domain.miss_status import ADVICE, MissCause
from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE

BYTES_PER_TOKEN = 4.0
"""English in the vocabularies of current models; nobody has counted these prompts."""


class PromptFileError(ValueError):
    """A body is no request of its API."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the second prompt leaves the first."""

    cause: MissCause | None
    """None: one is the beginning of the other."""
    place: str
    message: int | None
    field: str
    byte_offset: int | None
    """Within the field (a text's UTF-8, a JSON value's compact form): the first byte that differs."""
    token_offset: int | None
    """Within the prompt, at four bytes a token."""
    shared_bytes: int
    """Of the prompts' beginnings."""
    lost_bytes: int
    """In common behind that, where no cache of beginnings finds it."""
    advice: str


def explain_bodies(before: bytes, after: bytes, dialect: ApiDialect) -> Explanation:
    """Say where and why the second body's prompt leaves the first's. Raises: PromptFileError."""
    old, new = _segments(before, "A", dialect), _segments(after, "B", dialect)
    maker = FingerprintMaker(secrets.token_bytes(32))
    one, other = maker.make(old, None), maker.make(new, None)
    common = shared_content(one, other)
    found = compare(one, other)
    if found is None:
        return Explanation(
            cause=None, place="", message=None, field="", byte_offset=None, token_offset=None,
            shared_bytes=common.prefix_bytes, lost_bytes=0, advice="",
        )  # fmt: skip
    offset = found.byte_offset
    if found.segment < min(len(old), len(new)):
        offset = _first_byte(old[found.segment].text, new[found.segment].text)
    shared_bytes = found.shared_bytes - found.byte_offset + offset
    return Explanation(
        cause=found.cause,
        place=str(found.place),
        message=found.place.message,
        field=found.place.field,
        byte_offset=offset,
        token_offset=int(shared_bytes / BYTES_PER_TOKEN),
        shared_bytes=shared_bytes,
        lost_bytes=common.after_bytes,
        advice=ADVICE[found.cause],
    )


def _first_byte(old: bytes, new: bytes) -> int:
    """The first byte that differs; 0 where the texts are the same, and it is their role or field that differs."""
    if old == new:
        return 0
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(old), len(new)))


def _segments(body: bytes, name: str, dialect: ApiDialect) -> list[Segment]:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        found = list(segments_of(fields, dialect))
    except (*UNDECODABLE, UnreadableError) as error:
        raise PromptFileError(f"request {name} is no body of {dialect.value}: {error}") from error
    if not found:
        raise PromptFileError(f"request {name} has no prompt that {dialect.value} would read")
    return found
