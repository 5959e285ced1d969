"""How requests end (Outcome), why (ErrorCode), and the one table that gives each code its status, type and text.

Nothing else in headrace builds an error response: `RequestError` is raised or returned, `error_body` renders it.
Counterpart: docs/errors.md, generated from this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import msgspec


class Outcome(StrEnum):
    """How a request ended; a metric label. Every accepted request ends in exactly one."""

    COMPLETED = "completed"
    REJECTED = "rejected"
    """Never reached an engine."""
    EVICTED = "evicted"
    """Removed by headrace after queueing or dispatch."""
    FAILED = "failed"
    """An engine, the network or headrace broke."""
    CANCELLED = "cancelled"
    """The caller left, or its deadline passed."""


class Fault(StrEnum):
    """Whose doing it was."""

    CALLER = "caller"
    TENANT = "tenant"
    PLATFORM = "platform"
    ENGINE = "engine"
    US = "us"


class ErrorCode(StrEnum):
    """Why a request did not complete. Closed: a new code needs a row in ERRORS, a wire test and a line in the docs."""

    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    CONTEXT_TOO_LONG = "context_too_long"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    SUSPENDED = "suspended"
    IDENTITY_UNAVAILABLE = "identity_unavailable"
    MODEL_NOT_FOUND = "model_not_found"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    SATURATED = "saturated"
    QUEUE_EXPIRED = "queue_expired"
    NO_READY_ENDPOINT = "no_ready_endpoint"
    DRAINING = "draining"
    DATABASE_UNAVAILABLE = "database_unavailable"
    CONNECT_FAILED = "connect_failed"
    ENGINE_REFUSED = "engine_refused"
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"  # noqa: S105 (not a password)
    KV_TRANSFER_FAILED = "kv_transfer_failed"
    KV_TRANSFER_TIMEOUT = "kv_transfer_timeout"
    KV_LAYOUT_MISMATCH = "kv_layout_mismatch"
    DECODE_UNAVAILABLE = "decode_unavailable"
    STREAM_BROKEN = "stream_broken"
    STREAM_STALLED = "stream_stalled"
    CALLER_DISCONNECTED = "caller_disconnected"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CONFLICT = "conflict"
    OBJECT_NOT_FOUND = "object_not_found"
    STORE_UNAVAILABLE = "store_unavailable"
    INTERNAL_BUG = "internal_bug"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSpec:
    """One row of the error table."""

    outcome: Outcome
    http_status: int
    openai_type: str
    """The `error.type` that OpenAI's clients know."""
    fault: Fault
    may_fail_over: bool
    """Whether another endpoint may be tried before the commit point (first byte to the caller)."""
    retry_after_s: float | None
    """Default `Retry-After`; None sends no header. A caller of `RequestError` may give a better one."""
    title: str
    """One sentence for the docs: when this happens."""
    remedy: str
    """What the caller or the operator can do about it."""


def _caller(status: int, title: str, remedy: str, openai_type: str = "invalid_request_error") -> ErrorSpec:
    return ErrorSpec(
        outcome=Outcome.REJECTED,
        http_status=status,
        openai_type=openai_type,
        fault=Fault.CALLER,
        may_fail_over=False,
        retry_after_s=None,
        title=title,
        remedy=remedy,
    )


def _platform(title: str, remedy: str, retry_after_s: float = 1.0) -> ErrorSpec:
    return ErrorSpec(
        outcome=Outcome.REJECTED,
        http_status=503,
        openai_type="server_error",
        fault=Fault.PLATFORM,
        may_fail_over=False,
        retry_after_s=retry_after_s,
        title=title,
        remedy=remedy,
    )


def _engine(status: int, title: str, remedy: str) -> ErrorSpec:
    return ErrorSpec(
        outcome=Outcome.FAILED,
        http_status=status,
        openai_type="server_error",
        fault=Fault.ENGINE,
        may_fail_over=True,
        retry_after_s=None,
        title=title,
        remedy=remedy,
    )


ERRORS: Mapping[ErrorCode, ErrorSpec] = MappingProxyType(
    {
        ErrorCode.INVALID_REQUEST: _caller(
            400, "The request is not valid HTTP, JSON or API input.", "Correct the value that the message names."
        ),
        ErrorCode.UNSUPPORTED_PARAMETER: _caller(
            400,
            "A field is owned by the gateway, switched off by policy, or unknown to the engine.",
            "Leave the named field out, or ask the operator to allow it.",
        ),
        ErrorCode.CONTEXT_TOO_LONG: _caller(
            400, "Prompt and answer do not fit the model's context.", "Shorten the prompt or the output limit."
        ),
        ErrorCode.ROUTE_NOT_FOUND: _caller(
            404,
            "The path is not one that headrace serves, or the model's engines do not have it.",
            "Use one of the paths in the message, or another model.",
        ),
        ErrorCode.METHOD_NOT_ALLOWED: _caller(
            405, "The path exists, but not for this method.", "Use the method in `Allow`."
        ),
        ErrorCode.REQUEST_TIMEOUT: _caller(
            408,
            "Headers or body did not arrive in time.",
            "Send the request faster, or raise gateway.limits.*_timeout_s.",
        ),
        ErrorCode.BODY_TOO_LARGE: _caller(
            413,
            "The body is larger than gateway.limits.body_bytes.",
            "Send less, or ask the operator to raise the limit.",
        ),
        ErrorCode.HEADERS_TOO_LARGE: _caller(
            431,
            "The request line and headers are larger than gateway.limits.header_bytes.",
            "Send fewer or shorter headers.",
        ),
        ErrorCode.UNAUTHENTICATED: _caller(
            401,
            "No key, or a key that is unknown, revoked or expired.",
            "Send a valid key as `Authorization: Bearer hr-...`.",
            "authentication_error",
        ),
        ErrorCode.FORBIDDEN: _caller(
            403,
            "The key is valid but may not do this.",
            "Use another key, or ask the operator for the right.",
            "permission_error",
        ),
        ErrorCode.SUSPENDED: _caller(
            403,
            "An operator has suspended the key, or the project, tenant or organisation it belongs to.",
            "Ask the operator; retrying does not help.",
            "permission_error",
        ),
        ErrorCode.IDENTITY_UNAVAILABLE: _platform(
            "The identity provider's keys, with which the token would be checked, are not known (yet).",
            "Retry after `Retry-After`. Operators: the gateway's log says why the keys cannot be fetched.",
        ),
        ErrorCode.MODEL_NOT_FOUND: _caller(
            404, "No such model for this caller.", "List the models with GET /v1/models.", "not_found_error"
        ),
        ErrorCode.RATE_LIMITED: ErrorSpec(
            outcome=Outcome.REJECTED,
            http_status=429,
            openai_type="rate_limit_error",
            fault=Fault.TENANT,
            may_fail_over=False,
            retry_after_s=1.0,
            title="A declared limit of the caller's tenant or key is used up.",
            remedy="Retry after `Retry-After`, or ask the operator for a higher limit.",
        ),
        ErrorCode.QUOTA_EXHAUSTED: ErrorSpec(
            outcome=Outcome.REJECTED,
            http_status=429,
            openai_type="insufficient_quota",
            fault=Fault.TENANT,
            may_fail_over=False,
            retry_after_s=None,
            title="A budget of the caller's tenant, project, key or organisation is spent, or its stored files or open "
            "batches are as many as declared.",
            remedy="Wait for the next day or month (UTC), delete files, or ask the operator for more.",
        ),
        ErrorCode.SATURATED: _platform(
            "The gateway holds as many requests as gateway.limits.in_flight allows, or the pool's queue is full.",
            "Retry after `Retry-After`; add gateways or replicas.",
        ),
        ErrorCode.QUEUE_EXPIRED: ErrorSpec(
            outcome=Outcome.EVICTED,
            http_status=503,
            openai_type="server_error",
            fault=Fault.PLATFORM,
            may_fail_over=False,
            retry_after_s=1.0,
            title="The request waited for an engine as long as its class may (pools.<name>.queue.classes).",
            remedy="Retry after `Retry-After`; operators: `headrace queue`, and add replicas.",
        ),
        ErrorCode.NO_READY_ENDPOINT: _platform(
            "No endpoint of the model's pools is ready.",
            "Operators: `headrace status` says what each endpoint is doing.",
            5.0,
        ),
        ErrorCode.DRAINING: _platform(
            "The gateway is shutting down.", "Retry: another gateway or the next one will answer."
        ),
        ErrorCode.DATABASE_UNAVAILABLE: _platform(
            "The control API cannot use its database (inference goes on without it).",
            "Operators: the message names the database and the reason.",
            5.0,
        ),
        ErrorCode.CONNECT_FAILED: _engine(
            502, "No connection to an endpoint could be made.", "Operators: `headrace status`, `headrace logs`."
        ),
        ErrorCode.ENGINE_REFUSED: _engine(
            502, "The engine answered with an error of its own.", "Operators: `headrace logs`."
        ),
        ErrorCode.FIRST_TOKEN_TIMEOUT: _engine(
            504,
            "The engine sent no first byte within the pool's first_token_timeout_s.",
            "Add replicas, or raise the time-out.",
        ),
        ErrorCode.KV_TRANSFER_FAILED: _engine(
            502,
            "A prefill engine computed the prompt, its KV did not reach a decode engine, and no engine of the model "
            "answers alone.",
            "Retry. Operators: `headrace_handover_fallbacks_total` and the request log say what failed; look at the "
            "network between the two engines.",
        ),
        ErrorCode.KV_TRANSFER_TIMEOUT: _engine(
            504,
            "As `kv_transfer_failed`, but a step was overdue by more than pools.<name>.handover.timeout_s.",
            "Retry. Operators: add engines, or raise the bound.",
        ),
        ErrorCode.KV_LAYOUT_MISMATCH: _engine(
            502,
            "The model's prefill and decode engines cannot take one another's KV, and none answers alone.",
            "Operators: run the same engine version, model, number format and layout in both pools; `headrace check` "
            "names what differs.",
        ),
        ErrorCode.DECODE_UNAVAILABLE: _engine(
            502,
            "No pair of a prefill and a decode engine has room or is up, and no engine of the model answers alone.",
            "Retry; add engines of the role that is missing.",
        ),
        ErrorCode.STREAM_BROKEN: _engine(
            502, "The engine's answer ended before it was complete.", "Retry; operators: `headrace logs`."
        ),
        ErrorCode.STREAM_STALLED: _engine(
            504, "The engine fell silent in the middle of an answer.", "Retry; operators: `headrace logs`."
        ),
        ErrorCode.CALLER_DISCONNECTED: ErrorSpec(
            outcome=Outcome.CANCELLED,
            http_status=499,
            openai_type="cancelled",
            fault=Fault.CALLER,
            may_fail_over=False,
            retry_after_s=None,
            title="The caller closed its connection before the answer was complete.",
            remedy="Nothing: it is seen in logs and metrics only.",
        ),
        ErrorCode.DEADLINE_EXCEEDED: ErrorSpec(
            outcome=Outcome.CANCELLED,
            http_status=504,
            openai_type="timeout_error",
            fault=Fault.CALLER,
            may_fail_over=False,
            retry_after_s=None,
            title="The caller's own deadline (`x-request-timeout`) passed.",
            remedy="Give more time, or ask for less output.",
        ),
        ErrorCode.CONFLICT: _caller(
            409,
            "The control API cannot make this change: the declaration's file owns the entry, somebody else has changed "
            "it in between, it exists already, or others still need it.",
            "Edit the file at the line in the message, or read the entry again and repeat the change.",
        ),
        ErrorCode.OBJECT_NOT_FOUND: _caller(
            404,
            "The caller's tenant has no file or batch of this id.",
            "List them with GET /v1/files or GET /v1/batches.",
            "not_found_error",
        ),
        ErrorCode.STORE_UNAVAILABLE: _platform(
            "Files and batches cannot be reached or written (inference goes on without them).",
            "Retry after `Retry-After`. Operators: free disk space; logs/batch.err says why.",
            5.0,
        ),
        ErrorCode.INTERNAL_BUG: ErrorSpec(
            outcome=Outcome.FAILED,
            http_status=500,
            openai_type="server_error",
            fault=Fault.US,
            may_fail_over=False,
            retry_after_s=None,
            title="headrace itself failed.",
            remedy="Report it with the error id in the message.",
        ),
    }
)
"""The one table. Source: docs/decisions/0003-one-error-table.md."""


class RequestError(Exception):
    """A request ends with this code. The only exception that carries a failure to the caller.

    `message` says who, what, which value and what to do; it never holds prompt text or keys.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        allow: str | None = None,
        is_final: bool = False,
        figures: Mapping[str, int | float | str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s if retry_after_s is not None else ERRORS[code].retry_after_s
        self.allow = allow
        """Value of the `Allow` header, for METHOD_NOT_ALLOWED."""
        self.is_final = is_final
        """True where retrying cannot help: sends `x-should-retry: false`."""
        self.figures = figures
        """What programs may want beside the message: members of the error object, such as `prompt_tokens`."""
        self.lines = b""
        """Header lines beyond those of the code, such as `x-ratelimit-*`."""

    @property
    def spec(self) -> ErrorSpec:
        return ERRORS[self.code]

    def __repr__(self) -> str:
        return f"RequestError({self.code.value}: {self.message})"


def error_body(error: RequestError) -> bytes:
    """Render `error` in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}` and its figures, as JSON."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.spec.openai_type,
                "param": error.param,
                "code": error.code.value,
                **(error.figures or {}),
            }
        }
    )
