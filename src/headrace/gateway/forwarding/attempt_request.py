"""The bytes of one attempt: the head and body that an endpoint is sent."""

from headrace.domain.request import InferenceRequest
from headrace.domain.tenant import Caller
from headrace.engines.handover import LegRequest
from headrace.gateway.endpoints.endpoint import Endpoint


def attempt_body(request: InferenceRequest, endpoint: Endpoint, caller: Caller | None) -> bytes:
    """The request's body in the words of the endpoint's engine: the caller's own bytes wherever nothing must change."""
    is_plain = request.rewrites is None and endpoint.salter is None
    if is_plain and not request.is_stream and endpoint.plan.served_model == request.requested_model:
        return request.body  # as `body_for` would
    asks_usage = endpoint.driver.dialect.supports_stream_usage
    if is_plain:
        return request.body_for(endpoint.plan.served_model, asks_usage=asks_usage)
    pool = endpoint.plan
    salt = endpoint.salter(caller.tenant) if endpoint.salter is not None and caller is not None else None
    rewrite = request.rewrites.get(pool.name) if request.rewrites is not None else None
    return request.rewritten_body(pool.served_model, asks_usage=asks_usage, rewrite=rewrite, salt=salt)


def attempt_head(request: InferenceRequest, endpoint: Endpoint, lines: bytes, name: bytes, body_bytes: int) -> bytes:
    """The head: `lines` end with the request's id, to which `name` adds which attempt this is."""
    heads = endpoint.heads
    return b"POST %b%b HTTP/1.1\r\n%bcontent-type: application/json\r\n%b-%b\r\ncontent-length: %d\r\n\r\n" % (
        heads.prefix,
        request.path,
        heads.lines,
        lines,
        name,
        body_bytes,
    )


def leg_head(path: bytes, endpoint: Endpoint, lines: bytes, name: bytes, leg: LegRequest, body_bytes: int) -> bytes:
    """The head of one leg of a hand-over, as `attempt_head`; an engine that knows it by an id of its own gets that."""
    heads = endpoint.heads
    own = "".join(f"{header}: {value}\r\n" for header, value in leg.headers.items()).encode("ascii")
    if "x-request-id" in leg.headers:
        lines = lines.rpartition(b"x-request-id: ")[0]
    elif lines:
        lines = b"%b-%b\r\n" % (lines, name)
    return b"POST %b%b HTTP/1.1\r\n%bcontent-type: application/json\r\n%b%bcontent-length: %d\r\n\r\n" % (
        heads.prefix,
        path if leg.path is None else leg.path.encode("ascii"),
        heads.lines,
        lines,
        own,
        body_bytes,
    )
