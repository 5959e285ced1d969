"""Which watcher goes on with a stream, and how a stream is ended whose engine died before it could: by dialect."""

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.forwarding.core.bars import Had
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.resumed_chunks import ResumedChunks, closing_events
from headrace.gateway.forwarding.streams.resumed_messages import MESSAGE_STOP, ResumedMessages, typed_event
from headrace.gateway.forwarding.streams.watch import StreamWatch

RESUMABLE = frozenset({ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS, ApiDialect.MESSAGES})
"""APIs whose streams can go on. A Responses stream repeats its whole text at the end, under ids of its own engine."""


def resumed_watch(request: InferenceRequest, had: Had, seam: Seam) -> StreamWatch:
    """Return the watcher of the stream that goes on after what the caller has."""
    if request.dialect is ApiDialect.MESSAGES:
        return ResumedMessages(had, seam)
    return ResumedChunks(had, seam, hides_usage=request.adds_usage, guessed_input_tokens=_guessed_input_tokens(request))


def closing(request: InferenceRequest, had: Had, *, is_usage_sent: bool) -> bytes:
    """What ends a stream whose text is whole: because its finish reason has come, or because its limit is reached."""
    if request.dialect is ApiDialect.MESSAGES:
        if had.is_finished:
            return MESSAGE_STOP
        end = {"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": None}}
        stop = typed_event({"type": "content_block_stop", "index": 0})
        return stop + typed_event({**end, "usage": {"output_tokens": had.tokens}}) + MESSAGE_STOP
    guessed = None if is_usage_sent else _guessed_input_tokens(request)
    return closing_events(had, None if had.is_finished else "length", guessed)


def _guessed_input_tokens(request: InferenceRequest) -> int | None:
    """Only an engine knows; where it died, a caller that wants usage gets what was estimated at entry."""
    return request.estimated_input_tokens if request.wants_usage else None
