"""`batch`: files and batches of requests that are answered in the gaps (`/v1/files`, `/v1/batches`)."""

import msgspec
from pydantic import Field

from headrace.declaration.shape import RESTART, Section

DAY_S = 86400


class Batch(Section):
    """Files and batches. All bounds are per tenant unless they say otherwise."""

    enabled: bool = Field(default=True, description="Serve /v1/files and /v1/batches.", json_schema_extra=RESTART)
    file_bytes: int = Field(
        default=209715200, ge=1024, le=10737418240, description="Largest file, bytes.", json_schema_extra=RESTART
    )
    stored_bytes: int = Field(
        default=10737418240,
        ge=1024,
        description="All files together, bytes; over it, nothing more is taken in.",
        json_schema_extra=RESTART,
    )
    lines: int = Field(
        default=50000, ge=1, le=1000000, description="Most requests in one batch.", json_schema_extra=RESTART
    )
    open_batches: int = Field(
        default=20, ge=1, le=10000, description="Batches that are not over yet.", json_schema_extra=RESTART
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        le=1024,
        description="Lines of all batches and tenants together that are sent at once.",
        json_schema_extra=RESTART,
    )
    window_s: int = Field(
        default=7 * DAY_S,
        ge=1,
        le=90 * DAY_S,
        description="Longest completion_window that a batch may ask for, seconds.",
        json_schema_extra=RESTART,
    )
    retention_days: int = Field(
        default=30,
        ge=1,
        le=3650,
        description="Files, and batches that are over, are deleted after so many days.",
        json_schema_extra=RESTART,
    )


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`batch`, field for field, and what the process needs of other sections."""

    enabled: bool
    file_bytes: int
    stored_bytes: int
    lines: int
    open_batches: int
    concurrency: int
    window_s: int
    retention_days: int
    line_bytes: int
    """Longest line: what the gateway takes as a body."""


def compile_batch_plan(batch: Batch, *, body_bytes: int) -> BatchPlan:
    """What the batch process is started with."""
    return msgspec.convert({**batch.model_dump(), "line_bytes": body_bytes}, BatchPlan)
