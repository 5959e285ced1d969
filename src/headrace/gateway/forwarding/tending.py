"""What time does to deliveries: bounds that pass, heartbeats, streams that leave an endpoint that is taken away."""

from random import random

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.caller_stream import HEARTBEAT, CallerStream
from headrace.gateway.forwarding.core.bars import ResumeBar, ResumeCause
from headrace.gateway.forwarding.core.patience import Silence, judge_stall, judge_unanswered
from headrace.gateway.forwarding.delivery import Delivery
from headrace.gateway.forwarding.going_on import resume
from headrace.gateway.forwarding.phase import ENDED, SENT, STREAM, TAIL
from headrace.gateway.forwarding.resumption import may_move
from headrace.gateway.http.wire import STREAM_HEAD

TAIL_S = 5.0
"""An engine that has sent the end marker gets so long to end its HTTP message before it is cut. Chosen."""


def tend(delivery: Delivery, now_mono_s: float) -> None:
    """Enforce time-outs and send heartbeats; called every SWEEP_INTERVAL_S."""
    if delivery.phase is TAIL:
        if now_mono_s - _last_sent(delivery) > TAIL_S:
            delivery.cancel_attempt()
            delivery.phase = ENDED
        return
    if delivery.deadline_mono_s is not None and now_mono_s > delivery.deadline_mono_s:
        delivery.end(RequestError(ErrorCode.DEADLINE_EXCEEDED, "the deadline of x-request-timeout passed"))
        return
    if delivery.attempt is not None:
        delivery.attempt.claim.grow(delivery.output_tokens)
        _check_silence(delivery, delivery.attempt, now_mono_s)
    if delivery.phase is STREAM and delivery.stream is not None and delivery.attempt is not None:
        _tend_stream(delivery, delivery.stream, delivery.attempt.endpoint, now_mono_s)
    heartbeat_s = delivery.settings.heartbeat_s
    is_stream = delivery.request.is_stream
    if heartbeat_s is not None and is_stream and now_mono_s - _last_sent(delivery) > heartbeat_s:
        _send_heartbeat(delivery, now_mono_s)


def _check_silence(delivery: Delivery, attempt: Attempt, now_mono_s: float) -> None:
    endpoint, stream = attempt.endpoint, delivery.stream
    plan = endpoint.plan
    if delivery.phase is SENT:
        bound_s = plan.first_token_timeout_s if delivery.request.is_stream else plan.answer_timeout_s
        hangs = endpoint.is_silent and _can_leave(delivery)
        silence = judge_unanswered(now_mono_s - attempt.begun_mono_s, bound_s, hangs=hangs)
    elif not delivery.is_paused:
        is_kept = stream is not None and stream.watch.kept is not None
        # Before an attempt's first token the engine may be queueing or computing the prompt, its head long sent.
        has_begun = is_kept and delivery.output_tokens > 0
        bound_s = (plan.resume_stall_s if has_begun else None) or plan.stall_timeout_s
        silent_s = now_mono_s - delivery.last_block_mono_s
        is_deserted = endpoint.is_deserted(can_move=is_kept) or (endpoint.is_silent and _can_leave(delivery))
        if stream is not None and delivery.output_tokens:
            silent_s = now_mono_s - stream.spoke_mono_s  # by what keeps a line open no answer is nearer
        silence = judge_stall(silent_s, bound_s, is_deserted=is_deserted)
        if silence is None and stream is not None and stream.spoke_mono_s < delivery.last_block_mono_s:
            silence = _judge_pings(stream, attempt, now_mono_s)
    else:
        return
    if silence is not None:
        delivery.cancel_and_fail(silence.code, silence.detail)


def _judge_pings(stream: CallerStream, attempt: Attempt, now_mono_s: float) -> Silence | None:
    """Before the first token, pings show that an engine still computes the prompt: that has a bound of its own."""
    if stream.watch.output_events:
        return None
    since = stream.last_word_mono_s if stream.has_sent else attempt.begun_mono_s
    return judge_unanswered(now_mono_s - since, attempt.endpoint.plan.first_token_timeout_s)


def _can_leave(delivery: Delivery) -> bool:
    """The caller has nothing yet, and there is another endpoint: where there is none, one that hangs may recover."""
    return not delivery.has_spoken and delivery.settings.candidates.has_other(delivery.request, delivery.tried)


def _tend_stream(delivery: Delivery, stream: CallerStream, endpoint: Endpoint, now_mono_s: float) -> None:
    kept = stream.watch.kept
    if kept is None:
        return
    if len(kept) > delivery.settings.resume.kept_bytes:
        stream.watch.stop_keeping(ResumeBar.TOO_LONG)
    elif endpoint.is_draining:
        _leave_draining(delivery, stream, endpoint, now_mono_s)


def _leave_draining(delivery: Delivery, stream: CallerStream, endpoint: Endpoint, now_mono_s: float) -> None:
    """Take a stream from an endpoint that is being taken away, where it can go on elsewhere.

    Not all at once: each after a time of its own, since every one is a prompt to compute for those that stay.
    """
    settings = delivery.settings
    if delivery.move_mono_s is None:
        delivery.move_mono_s = now_mono_s + settings.resume.drain_after_s * (0.5 + 0.5 * random())  # noqa: S311
    is_due = now_mono_s >= delivery.move_mono_s and stream.has_sent
    if not is_due or not settings.candidates.has_other(delivery.request, delivery.tried):
        return
    if may_move(delivery.request, stream.watch, settings.resume):
        delivery.move_mono_s = None
        delivery.note_usage()
        delivery.cancel_attempt()
        resume(delivery, stream, endpoint, ResumeCause.DRAINED, now_mono_s)


def _last_sent(delivery: Delivery) -> float:
    stream = delivery.stream
    own = delivery.last_sent_mono_s
    return own if stream is None else max(own, stream.last_sent_mono_s)


def _send_heartbeat(delivery: Delivery, now_mono_s: float) -> None:
    if delivery.phase is ENDED or delivery.is_paused:
        return
    if not delivery.exchange.is_streaming:
        delivery.exchange.begin_stream(delivery.reply_lines + STREAM_HEAD)
    delivery.last_sent_mono_s = now_mono_s
    delivery.exchange.send(HEARTBEAT)
