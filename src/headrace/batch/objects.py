"""Files and batches as they are kept, and as OpenAI's API shows them.

Source: OpenAI's API reference, "The file object" and "The batch object".
"""

from enum import StrEnum
from typing import Any

import msgspec

from headrace.batch.core.lines import LineError
from headrace.domain.batch import Submitter


class BatchStatus(StrEnum):
    """Where a batch is in its life."""

    VALIDATING = "validating"
    FAILED = "failed"
    """Its input is not valid: nothing was sent."""
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


OPEN = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file; its content is `files/<file id>` in the batch folder."""

    file_id: str
    tenant: str
    filename: str
    purpose: str
    bytes_: int
    created_at: float
    expires_at: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines a batch has, and what has become of them."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. Results are appended to `files/<output id>` and `files/<error id>` from its first answer on."""

    batch_id: str
    submitter: Submitter
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: float
    expires_at: float
    """End of its window."""
    output_file_id: str
    error_file_id: str
    metadata: dict[str, str] | None = None
    status: BatchStatus = BatchStatus.VALIDATING
    counts: Counts = Counts()
    errors: tuple[LineError, ...] = ()
    has_output: bool = False
    has_errors: bool = False
    times: dict[str, float] = {}
    """When it came into each status, by name."""

    @property
    def tenant(self) -> str:
        return self.submitter.tenant

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


def entered(batch: StoredBatch, status: BatchStatus, now_at: float, **changes: Any) -> StoredBatch:
    """`batch` as it comes into `status`."""
    times = {**batch.times, status.value: now_at}
    return msgspec.structs.replace(batch, status=status, times=times, **changes)


def show_file(file: StoredFile) -> dict[str, Any]:
    """The API's file object."""
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.bytes_,
        "created_at": int(file.created_at),
        "expires_at": int(file.expires_at),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def show_batch(batch: StoredBatch) -> dict[str, Any]:
    """The API's batch object."""

    def at(status: BatchStatus) -> int | None:
        moment = batch.times.get(status.value)
        return None if moment is None else int(moment)

    problems = [
        {"code": one.code, "message": one.message, "line": one.line, "param": one.param} for one in batch.errors
    ]
    return {
        "id": batch.batch_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": problems} if problems else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file_id if batch.has_output else None,
        "error_file_id": batch.error_file_id if batch.has_errors else None,
        "created_at": int(batch.created_at),
        "in_progress_at": at(BatchStatus.IN_PROGRESS),
        "expires_at": int(batch.expires_at),
        "finalizing_at": at(BatchStatus.FINALIZING),
        "completed_at": at(BatchStatus.COMPLETED),
        "failed_at": at(BatchStatus.FAILED),
        "expired_at": at(BatchStatus.EXPIRED),
        "cancelling_at": at(BatchStatus.CANCELLING),
        "cancelled_at": at(BatchStatus.CANCELLED),
        "request_counts": {
            "total": batch.counts.total,
            "completed": batch.counts.completed,
            "failed": batch.counts.failed,
        },
        "metadata": batch.metadata,
    }
