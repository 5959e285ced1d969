"""Why prompts missed the engines' prefix caches: causes, advice, and what `headrace cache misses` shows."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class MissCause(StrEnum):
    """Why a prompt did not find what another like it had left in a cache. The value is a metric's label."""

    WHITE_SPACE = "white-space"
    TOOL_ORDER = "tool-order"
    KEY_ORDER = "key-order"
    TIMESTAMP = "timestamp"
    IDENTIFIER = "identifier"
    NUMBER = "number"
    PARAMETER = "parameter"
    MODEL_VERSION = "model-version"
    DYNAMIC_CONTENT = "dynamic-content"
    TOOLS_CHANGED = "tools-changed"
    MESSAGE_EDITED = "message-edited"
    MESSAGE_INSERTED = "message-inserted"
    FRONT_TRUNCATED = "front-truncated"
    EVICTED = "evicted"
    ENGINE_RESTARTED = "engine-restarted"
    NO_CACHE = "no-cache"
    OTHER_ENDPOINT = "other-endpoint"
    DIFFERENT = "different"
    """The prompts have nothing in common from there on: no miss, and never counted as one."""


ADVICE: dict[MissCause, str] = {
    MissCause.WHITE_SPACE: "build this text in one way everywhere: strip it, and keep line ends and indents alike",
    MissCause.TOOL_ORDER: "sort the tools by name before sending them",
    MissCause.KEY_ORDER: "write JSON with sorted keys (sort_keys=True), or keep the schema as one constant",
    MissCause.TIMESTAMP: "move the time to the last message, or round it to the day",
    MissCause.IDENTIFIER: "take the id out of the prompt, or move it to the last message",
    MissCause.NUMBER: "move what counts or changes to the last message",
    MissCause.PARAMETER: "keep this field the same for all requests that share a prompt",
    MissCause.MODEL_VERSION: "nothing while versions change; otherwise keep a conversation on one pool (routing.split)",
    MissCause.DYNAMIC_CONTENT: "put what changes after what stays: fixed instructions first, names and documents last",
    MissCause.TOOLS_CHANGED: "send the same tools each time and restrict them with tool_choice",
    MissCause.MESSAGE_EDITED: "append to a conversation instead of changing what was sent before",
    MissCause.MESSAGE_INSERTED: "add messages at the end, not before those that were sent already",
    MissCause.FRONT_TRUNCATED: "cut a conversation rarely and by much (to half), not by one message each turn",
    MissCause.EVICTED: "more KV cache (KV dtype, memory share, replicas, host offload), or fewer prompts an endpoint",
    MissCause.ENGINE_RESTARTED: "look at why it restarted: headrace status, headrace logs",
    MissCause.NO_CACHE: "this engine never found anything cached: switch prefix caching on (pools.<name>.prefix_cache)",
    MissCause.OTHER_ENDPOINT: "weigh predicted-ttft and prefill-work higher, raise brake_factor, or name sessions",
    MissCause.DIFFERENT: "nothing: they are different prompts",
}


class MissRow(msgspec.Struct, frozen=True, kw_only=True):
    """Misses of prompts that begin alike and that have one cause at one place. Numbers and known words only."""

    model: str
    tenant: str
    alike: str
    """Names all prompts whose first text is the same but for times, ids and numbers. Not the family of HitCounts, which
    is the same first kilobyte to the byte."""
    """A keyed hash."""
    cause: MissCause
    place: str
    """Such as `messages[0].content (system)` or `tools[2]`; empty where the prompts do not differ."""
    message: int | None
    field: str
    byte_offset: int | None
    """Within the field (a text's UTF-8, a JSON value's compact form); of the latest miss."""
    grain_bytes: int | None
    """The difference begins in `byte_offset` and less than so many bytes further on."""
    token_offset: int | None
    """Within the prompt, estimated from its bytes."""
    endpoint: str
    """That answered the latest."""
    requests: int
    """Seen in the last hour, or less where the gateway runs for less."""
    tokens_lost: int
    """Computed anew by these requests although an engine had computed them before; estimated from bytes."""
    tokens_lost_per_hour: float
    """Scaled up to what was not looked at."""
    advice: str


class MissStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker found, or all of them."""

    workers: int
    answers: int
    """That told their cached tokens, since the workers started."""
    examined: int
    """Of those, taken a fingerprint of."""
    explained: int
    """Of those, misses that have a cause."""
    kept_bytes: int
    """Memory of fingerprints, estimated."""
    cpu_s: float
    """CPU spent on it."""
    rows: tuple[MissRow, ...]


def add_up_misses(found: Iterable[MissStatus]) -> MissStatus:
    """All workers together; the same row of several is one, with the place of the one that lost most."""
    statuses = list(found)
    rows: dict[tuple[str, str, str, str, str], MissRow] = {}
    for row in (row for status in statuses for row in status.rows):
        key = (row.model, row.tenant, row.alike, row.cause.value, row.place)
        known = rows.get(key)
        rows[key] = row if known is None else _sum(known, row)
    return MissStatus(
        workers=sum(status.workers for status in statuses),
        answers=sum(status.answers for status in statuses),
        examined=sum(status.examined for status in statuses),
        explained=sum(status.explained for status in statuses),
        kept_bytes=sum(status.kept_bytes for status in statuses),
        cpu_s=sum(status.cpu_s for status in statuses),
        rows=tuple(sorted(rows.values(), key=lambda row: -row.tokens_lost_per_hour)),
    )


def _sum(one: MissRow, other: MissRow) -> MissRow:
    larger = one if one.tokens_lost >= other.tokens_lost else other
    return msgspec.structs.replace(
        larger,
        requests=one.requests + other.requests,
        tokens_lost=one.tokens_lost + other.tokens_lost,
        tokens_lost_per_hour=one.tokens_lost_per_hour + other.tokens_lost_per_hour,
    )
