"""The gateway's bounds, each with a default; `gateway.limits` in headrace.yaml."""

from pydantic import Field

from headrace.declaration.shape import Section


class GatewayLimits(Section):
    """What one gateway accepts. Every queue, buffer and wait in the request path has its bound here."""

    header_bytes: int = Field(
        default=65536, ge=1024, le=1048576, description="Request line and headers, bytes; over it: 431."
    )
    body_bytes: int = Field(default=33554432, ge=1024, le=1073741824, description="Request body, bytes; over it: 413.")
    body_fields: int = Field(
        default=256, ge=16, le=65536, description="Top-level fields of a request body; over it: 400 invalid_request."
    )
    body_values: int = Field(
        default=100000,
        ge=1000,
        le=10000000,
        description=(
            "Values in a request body at all depths, ten numbers in a row as one; over it: 400 invalid_request. "
            "Bounds how long one body can keep the others waiting."
        ),
    )
    header_timeout_s: float = Field(
        default=10.0, gt=0, le=600, description="First byte to the end of the headers; over it: 408."
    )
    body_timeout_s: float = Field(
        default=60.0, gt=0, le=3600, description="End of headers to the end of the body; over it: 408."
    )
    idle_timeout_s: float = Field(
        default=75.0, gt=0, le=3600, description="A keep-alive connection without a request is closed."
    )
    slow_reader_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="A caller that takes no byte of a waiting answer for so long is cut off.",
    )
    write_buffer_bytes: int = Field(
        default=65536, ge=4096, le=16777216, description="Answer bytes held for a caller before its engine is paused."
    )
    event_bytes: int = Field(
        default=4194304,
        ge=4096,
        le=67108864,
        description="Largest single event of a stream; a larger one breaks the stream.",
    )
    response_bytes: int = Field(
        default=67108864, ge=4096, le=1073741824, description="Largest whole (non-streamed) answer of an engine."
    )
    connections: int = Field(
        default=10000,
        ge=1,
        le=1000000,
        description="Open caller connections of a worker, also bounded by half its open files; more are closed.",
    )
    in_flight: int = Field(
        default=4096, ge=1, le=1000000, description="Requests in work at once; over it: 503 saturated."
    )
