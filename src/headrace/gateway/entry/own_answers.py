"""What headrace answers itself: the model list, health, readiness, CORS preflights."""

import time
from math import ceil

import msgspec

from headrace.domain.errors import RequestError, error_body
from headrace.gateway.entry.head import RequestHead
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.wire import JSON_TYPE

STARTED_AT = int(time.time())  # noqa: TID251 (a timestamp, never subtracted)
"""`created` of every model: the API wants one, and a declaration has none."""


RATE_FIGURES = (b"limit", b"remaining", b"reset")
EXPOSED = b", ".join(
    (
        *(b"x-request-id", b"traceparent", b"retry-after", b"x-should-retry"),
        *(b"x-headrace-model", b"x-headrace-degraded"),
        *(b"x-ratelimit-%b-%b" % (figure, kind) for kind in (b"requests", b"tokens") for figure in RATE_FIGURES),
    )
)
"""Headers of answers that scripts of a browser page may read."""


def list_models(names: list[str]) -> bytes:
    """The body of GET /v1/models."""
    return msgspec.json.encode({"object": "list", "data": [_model(name) for name in names]})


def show_model(name: str) -> bytes:
    """The body of GET /v1/models/{id}."""
    return msgspec.json.encode(_model(name))


def _model(name: str) -> dict[str, str | int]:
    return {"id": name, "object": "model", "created": STARTED_AT, "owned_by": "headrace"}


def refuse(exchange: Exchange, head: RequestHead, error: RequestError, cors: bytes) -> None:
    """Answer with an error as a whole response: status, body and headers from the one table."""
    lines = head.reply_lines + JSON_TYPE + cors + error.lines
    if error.retry_after_s is not None:
        lines += b"retry-after: %d\r\n" % max(1, ceil(error.retry_after_s))
    if error.is_final:
        lines += b"x-should-retry: false\r\n"
    if error.allow is not None:
        lines += b"allow: " + error.allow.encode("ascii") + b"\r\n"
    if error.spec.http_status == 401:
        lines += b"www-authenticate: Bearer\r\n"
    exchange.respond(error.spec.http_status, lines, error_body(error))


class CorsPolicy:
    """Which browser pages may read answers. Without origins, nothing is said, which browsers take for no."""

    def __init__(self, origins: tuple[str, ...], max_age_s: int) -> None:
        self._origins = frozenset(origin.encode("ascii") for origin in origins)
        self._max_age = b"%d" % max_age_s
        self.has_origins = bool(origins)
        """False: answers say nothing of the matter."""

    def add_lines(self, lines: bytes, exchange: Exchange) -> bytes:
        """`lines` with ours after them."""
        return lines + self.lines_for(exchange) if self._origins else lines

    def lines_for(self, exchange: Exchange) -> bytes:
        """Header lines for the answer to this caller; empty for most."""
        if not self._origins:
            return b""
        origin = exchange.headers.get(b"origin")
        if origin is None or (b"*" not in self._origins and origin not in self._origins):
            return b"vary: origin\r\n"
        allowed = b"*" if b"*" in self._origins else origin
        return b"access-control-allow-origin: %b\r\nvary: origin\r\naccess-control-expose-headers: %b\r\n" % (
            allowed,
            EXPOSED,
        )

    def preflight_lines(self, exchange: Exchange, allow: bytes) -> bytes:
        """Header lines for the answer to OPTIONS."""
        lines = b"allow: %b\r\n%b" % (allow, self.lines_for(exchange))
        if b"access-control-allow-origin" not in lines:
            return lines
        return lines + (
            b"access-control-allow-methods: %b\r\naccess-control-max-age: %b\r\n"
            b"access-control-allow-headers: authorization, content-type, x-api-key, x-request-id, x-request-timeout, "
            b"x-headrace-class, x-headrace-conversation, idempotency-key, "
            b"traceparent, tracestate, anthropic-version, openai-organization, openai-project\r\n"
            % (allow, self._max_age)
        )
