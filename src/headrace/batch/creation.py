"""What a caller wants of a batch, and the batch that is made of it."""

import re

import msgspec

from headrace.batch.core.lines import ENDPOINTS
from headrace.batch.objects import BatchStatus, StoredBatch
from headrace.batch.uploads import make_file_id
from headrace.declaration.batch_section import BatchPlan
from headrace.domain.batch import Submitter
from headrace.domain.errors import ErrorCode, RequestError

METADATA_PAIRS = 16
METADATA_KEY_CHARACTERS = 64
METADATA_VALUE_CHARACTERS = 512
"""Source: OpenAI's API reference, `metadata` of batches."""
_WINDOW = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class BatchWish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None


def make_batch(wish: BatchWish, submitter: Submitter, now_at: float, plan: BatchPlan, batch_id: str) -> StoredBatch:
    """Return the batch as it begins. Raises: RequestError INVALID_REQUEST."""
    if wish.endpoint not in ENDPOINTS:
        raise _invalid(f"endpoint must be one of {', '.join(ENDPOINTS)}", "endpoint")
    for key, value in (wish.metadata or {}).items():
        if len(key) > METADATA_KEY_CHARACTERS or len(value) > METADATA_VALUE_CHARACTERS:
            message = (
                f"metadata: keys may have {METADATA_KEY_CHARACTERS}, values {METADATA_VALUE_CHARACTERS} characters"
            )
            raise _invalid(message, "metadata")
    if len(wish.metadata or {}) > METADATA_PAIRS:
        raise _invalid(f"metadata may have {METADATA_PAIRS} pairs", "metadata")
    return StoredBatch(
        batch_id=batch_id,
        submitter=submitter,
        endpoint=wish.endpoint,
        input_file_id=wish.input_file_id,
        completion_window=wish.completion_window,
        created_at=now_at,
        expires_at=now_at + _window_s(wish.completion_window, plan.window_s),
        output_file_id=make_file_id(),
        error_file_id=make_file_id(),
        metadata=wish.metadata,
        times={BatchStatus.VALIDATING.value: now_at},
    )


def _window_s(text: str, most_s: int) -> int:
    match = _WINDOW.fullmatch(text)
    window_s = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 1 <= window_s <= most_s:
        message = f"completion_window must be a time such as 24h, and at most {most_s} s (batch.window_s)"
        raise _invalid(message, "completion_window")
    return window_s


def _invalid(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param=param)
