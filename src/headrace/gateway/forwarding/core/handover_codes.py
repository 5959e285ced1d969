"""What a caller is told of a hand-over that failed, where no engine can answer the request alone."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.domain.errors import ErrorCode
from headrace.gateway.handover.core.events import HandoverFailure

CODES: Mapping[HandoverFailure, ErrorCode] = MappingProxyType(
    {
        HandoverFailure.PREFILL_REFUSED: ErrorCode.ENGINE_REFUSED,
        HandoverFailure.PREFILL_LOST: ErrorCode.CONNECT_FAILED,
        HandoverFailure.PREFILL_LATE: ErrorCode.KV_TRANSFER_TIMEOUT,
        HandoverFailure.PREFILL_UNREADABLE: ErrorCode.KV_TRANSFER_FAILED,
        HandoverFailure.TICKET_SPENT: ErrorCode.KV_TRANSFER_FAILED,
        HandoverFailure.TICKET_EXPIRED: ErrorCode.KV_TRANSFER_TIMEOUT,
        HandoverFailure.TRANSFER_FAILED: ErrorCode.KV_TRANSFER_FAILED,
        HandoverFailure.TRANSFER_LATE: ErrorCode.KV_TRANSFER_TIMEOUT,
        HandoverFailure.TRANSFER_SHORT: ErrorCode.KV_TRANSFER_FAILED,
        HandoverFailure.FILE_TORN: ErrorCode.KV_TRANSFER_FAILED,
        HandoverFailure.DECODE_UNAVAILABLE: ErrorCode.DECODE_UNAVAILABLE,
        HandoverFailure.DECODE_REFUSED: ErrorCode.ENGINE_REFUSED,
        HandoverFailure.DECODE_LOST: ErrorCode.CONNECT_FAILED,
        HandoverFailure.DECODE_LATE: ErrorCode.KV_TRANSFER_TIMEOUT,
    }
)

BLAMED = frozenset(
    {
        HandoverFailure.PREFILL_REFUSED,
        HandoverFailure.PREFILL_LOST,
        HandoverFailure.PREFILL_LATE,
        HandoverFailure.DECODE_REFUSED,
        HandoverFailure.DECODE_LOST,
        HandoverFailure.DECODE_LATE,
    }
)
"""Failures that count against the engine; the others are the way between two."""
