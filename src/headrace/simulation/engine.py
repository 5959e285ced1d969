"""One simulated engine replica: requests in, steps out. The table of contents of the engine model.

A step plans like a real scheduler does: generate for what runs, fill the rest of the token budget with prompts, start
what waits while sequences and KV blocks allow, preempt the newest when blocks run out.
"""

from headrace.simulation.holding import HeldKv
from headrace.simulation.model import EngineModel
from headrace.simulation.outcome import (
    Emission,
    Ended,
    FinishReason,
    FirstToken,
    LoadSnapshot,
    Refusal,
    RefusalReason,
    Step,
)
from headrace.simulation.request import SimulatedRequest
from headrace.simulation.scheduling import Scheduler, StepWork
from headrace.simulation.sequence import LiveSequence, Phase

LONGEST_STRETCH_STEPS = 256
"""How far `plan_stretch` looks ahead: what is planned beyond an arrival is planned again."""


class SimulatedEngine:
    """Pure: every time is an argument and never goes backwards. Not for use by several threads at once.

    Real time: `step(now_s)`, wait for its `duration_s`, deliver its emissions, again. Virtual time may take many decode
    steps at once: `plan_stretch(now_s)`, then `commit_stretch` with as many of them as are to happen.
    """

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self._scheduler = Scheduler(model)
        self._drafts = model.speculation.draft_tokens if model.speculation else 0
        self._live: dict[str, LiveSequence] = {}
        self._held = HeldKv(self._scheduler.kv)
        self._lost: list[str] = []
        """Requests that end with an error in the next step."""
        self._order = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._finished = 0
        self._cancelled = 0
        self._draft_tokens = 0
        self._accepted_tokens = 0

    # Requests

    def submit(self, request: SimulatedRequest, now_s: float) -> Refusal | None:
        """Queue a request, or say why not. It starts with the next step."""
        if request.request_id in self._live or self._held.has(request.request_id):
            raise ValueError(f"request {request.request_id} is here already")
        sequence = LiveSequence(request, self._order, now_s, self.model.bounds.context_tokens)
        refusal = self._find_refusal(sequence)
        if refusal is None:
            self._order += 1
            self._live[request.request_id] = sequence
            self._scheduler.waiting.add(sequence)
        return refusal

    def _find_refusal(self, sequence: LiveSequence) -> Refusal | None:
        """Check, in this order: the context, the KV memory, the queue."""
        bounds, kv = self.model.bounds, self.model.kv
        limit_tokens = sequence.request.max_output_tokens
        asked_tokens = sequence.input_tokens + (1 if limit_tokens is None else limit_tokens)
        if asked_tokens > bounds.context_tokens:
            return Refusal(reason=RefusalReason.CONTEXT_TOO_LONG, requested=asked_tokens, limit=bounds.context_tokens)
        kv_tokens = kv.total_blocks * kv.block_tokens
        if sequence.longest_kv_tokens > kv_tokens:
            return Refusal(reason=RefusalReason.KV_TOO_SMALL, requested=sequence.longest_kv_tokens, limit=kv_tokens)
        waiting = self._scheduler.waiting
        if bounds.max_queued_requests is not None and len(waiting) >= bounds.max_queued_requests:
            return Refusal(
                reason=RefusalReason.QUEUE_FULL, requested=len(waiting) + 1, limit=bounds.max_queued_requests
            )
        queued_tokens = waiting.prompt_tokens + sequence.input_tokens
        if bounds.max_queued_tokens is not None and queued_tokens > bounds.max_queued_tokens:
            return Refusal(reason=RefusalReason.QUEUE_FULL, requested=queued_tokens, limit=bounds.max_queued_tokens)
        return None

    def cancel(self, request_id: str) -> bool:
        """Forget a waiting or running request and free its blocks; False if it is unknown or has ended."""
        sequence = self._live.pop(request_id, None)
        if sequence is None:
            return False
        self._scheduler.drop(sequence)
        self._cancelled += 1
        return True

    # Steps

    def step(self, now_s: float, *, has_emissions: bool = True) -> Step | None:
        """Do one step that starts now; None when there is nothing to do.

        Without emissions the step says who got a first token and who ended, not what each of the others got.
        """
        scheduler = self._scheduler
        self._held.expire(now_s)
        scheduler.finish_loading(now_s)
        work, decodes = self._plan(now_s)
        if not decodes and not work.prefill_tokens and not self._lost:
            return self._wait(now_s, work)
        step = Step(
            duration_s=self._duration_s(work, decodes=decodes),
            preempted=work.preempted,
            prefill_tokens=work.prefill_tokens,
            decode_sequences=decodes,
        )
        step.emissions += [Emission(request_id, 0, FinishReason.ERROR) for request_id in self._lost]
        step.ended += [Ended(request_id, 0, FinishReason.ERROR) for request_id in self._lost]
        self._lost.clear()
        if decodes and has_emissions:
            self._decode(step)
        elif decodes:
            self._advance_decoding()
            step.ended += self._end_decoded()
        for sequence in work.completed:
            self._emit_after_prompt(sequence, step, now_s + step.duration_s)
        return step

    def _plan(self, now_s: float) -> tuple[StepWork, int]:
        """Decide what this step computes: prompts as work, and how many sequences decode."""
        scheduler, bounds = self._scheduler, self.model.bounds
        work = StepWork(budget_tokens=bounds.max_batched_tokens)
        is_mixed = bounds.is_prefill_mixed
        if is_mixed:
            scheduler.make_room_to_decode(work)
            work.budget_tokens -= len(scheduler.decoding.sequences) * (1 + self._drafts)
        if scheduler.kv.is_assigned_first and not work.preempted:
            scheduler.admit(now_s, work, is_decoding=is_mixed)
        scheduler.continue_prompts(work, is_decoding=is_mixed)
        if not scheduler.kv.is_assigned_first and not work.preempted:
            scheduler.admit(now_s, work, is_decoding=is_mixed)
        if not is_mixed:
            if work.prefill_tokens:
                return work, 0
            scheduler.make_room_to_decode(work)
        return work, len(scheduler.decoding.sequences)

    def _duration_s(self, work: StepWork, *, decodes: int) -> float:
        if not decodes and not work.prefill_tokens:
            return 0.0
        positions = decodes * (1 + self._drafts)
        kv_tokens = self._scheduler.decoding.kv_tokens + positions if decodes else 0
        return self.model.clock.step_s(
            work.prefill_tokens, work.prefill_pairs, work.prefill_kv_tokens, decodes, positions, kv_tokens
        )

    def _wait(self, now_s: float, work: StepWork) -> Step | None:
        """Nothing can be computed now: say until when, or that there is nothing at all."""
        moments = [sequence.ready_at_s for sequence in self._scheduler.loading.values()]
        if self._scheduler.waiting:
            moments += self._held.expiries()
        if not moments:
            assert not self._live, f"{len(self._live)} requests and nothing to do: {next(iter(self._live.values()))}"
            return None
        return Step(duration_s=max(0.0, min(moments) - now_s), preempted=work.preempted, is_wait=True)

    def _decode(self, step: Step) -> None:
        decoding = self._scheduler.decoding
        sequences = list(decoding.sequences.values())
        self._advance_decoding()
        gains = [decoding.last_gain_tokens(sequence) for sequence in sequences]
        step.ended += self._end_decoded()
        reasons = {ended.request_id: ended.finish_reason for ended in step.ended}
        for sequence, gain in zip(sequences, gains, strict=True):
            step.emissions.append(Emission(sequence.request_id, gain, reasons.get(sequence.request_id)))

    def _advance_decoding(self, steps: int = 1) -> None:
        decoding = self._scheduler.decoding
        count = len(decoding.sequences)
        self._scheduler.kv.take(decoding.blocks_ahead(steps))
        tokens = decoding.advance(steps)
        self._generation_tokens += tokens
        if self._drafts:
            self._draft_tokens += count * self._drafts * steps
            self._accepted_tokens += tokens - count * steps

    def _end_decoded(self) -> list[Ended]:
        ended = self._scheduler.decoding.pop_ended()
        for sequence in ended:
            self._end(sequence)
        return [Ended(sequence.request_id, sequence.emitted, sequence.finish_reason) for sequence in ended]

    def _emit_after_prompt(self, sequence: LiveSequence, step: Step, ends_at_s: float) -> None:
        """The step computed all that was missing of a sequence: it gets its first, or next, token."""
        if sequence.emitted == 0:
            self._prompt_tokens += sequence.input_tokens
            step.first_tokens.append(_first_token(sequence))
        sequence.emitted += 1
        self._generation_tokens += 1
        del self._scheduler.prefilling[sequence.request_id]
        is_ended = sequence.emitted == sequence.output_tokens
        if not is_ended:
            sequence.phase = Phase.DECODE
            self._scheduler.decoding.add(sequence)
        elif sequence.request.is_prefill_only:
            self._scheduler.detach(sequence)
            del self._live[sequence.request_id]
            self._finished += 1
            self._held.hold(sequence, expires_at_s=ends_at_s + self.model.hold_s)
        else:
            self._end(sequence)
        step.emissions.append(Emission(sequence.request_id, 1, sequence.finish_reason if is_ended else None))
        if is_ended:
            step.ended.append(Ended(sequence.request_id, sequence.emitted, sequence.finish_reason))

    def _end(self, sequence: LiveSequence) -> None:
        self._scheduler.drop(sequence)
        del self._live[sequence.request_id]
        self._finished += 1

    # Many steps at once

    def plan_stretch(self, now_s: float) -> list[float]:
        """Return when each of the coming steps ends, as long as they only decode and nobody comes or goes.

        The last of them may end sequences. Empty when the next step is not of this kind: then call `step`.
        """
        scheduler = self._scheduler
        decoding = scheduler.decoding
        if not decoding.sequences or scheduler.prefilling or scheduler.loading or self._lost:
            return []
        if not scheduler.is_stuck or (scheduler.waiting and self._held):
            return []
        count = len(decoding.sequences)
        positions = count * (1 + self._drafts)
        available = scheduler.kv.available_blocks
        longest = min(decoding.steps_to_first_end(), LONGEST_STRETCH_STEPS)
        step_s, ends_at_s = self.model.clock.step_s, list[float]()
        for kv_tokens, blocks in decoding.iter_ahead():
            available -= blocks
            if available < 0:
                break
            now_s += step_s(0, 0, 0, count, positions, kv_tokens + positions)
            ends_at_s.append(now_s)
            if len(ends_at_s) >= longest:
                break
        return ends_at_s

    def commit_stretch(self, steps: int) -> list[Ended]:
        """Do the first steps of a planned stretch; return the requests that ended in the last one."""
        self._advance_decoding(steps)
        return self._end_decoded()

    # KV on the move

    def held_bytes(self, request_id: str) -> int | None:
        """Bytes of KV held for a finished prefill-only request; None if none is held (expired or fetched)."""
        tokens = self._held.find_tokens(request_id)
        return None if tokens is None else tokens * self.model.kv.bytes_per_token

    def release_held(self, request_id: str) -> bool:
        """A decode engine has fetched the KV, or never will."""
        return self._held.release(request_id)

    def lose_transfer(self, request_id: str) -> bool:
        """The KV that a request waits for does not come: it recomputes or ends with an error, as it asked."""
        sequence = self._scheduler.loading.get(request_id)
        if sequence is None or not sequence.transferred_tokens:
            return False
        if sequence.request.is_recomputed_on_transfer_loss:
            sequence.cached_tokens -= sequence.transferred_tokens
            sequence.transferred_tokens = 0
            self._scheduler.end_loading(sequence, sequence.kv_tokens)
        else:
            self._end(sequence)
            self._lost.append(request_id)
        return True

    def clear_prefix_cache(self) -> None:
        """Forget all cached KV that no request uses."""
        self._scheduler.kv.clear()

    # Observation

    @property
    def findable_blocks(self) -> int:
        """Blocks of the device whose contents can be found again, used or not."""
        return self._scheduler.kv.shared_blocks

    @property
    def evicted_blocks(self) -> int:
        """A counter."""
        return self._scheduler.kv.evicted_blocks

    def load(self) -> LoadSnapshot:
        scheduler, kv = self._scheduler, self._scheduler.kv
        return LoadSnapshot(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            waiting_tokens=scheduler.waiting.prompt_tokens,
            kv_blocks_used=kv.used_blocks,
            kv_blocks_cached=kv.idle_blocks,
            kv_blocks_total=kv.total_blocks,
            kv_blocks_held=self._held.blocks,
            host_blocks_used=kv.host_blocks,
            host_blocks_total=self.model.host.total_blocks if self.model.host else 0,
            prefix_query_tokens=scheduler.prefix_query_tokens,
            prefix_hit_tokens=scheduler.prefix_hit_tokens,
            host_hit_tokens=scheduler.host_hit_tokens,
            evicted_blocks=kv.evicted_blocks,
            preemptions=scheduler.preemptions,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            finished=self._finished,
            cancelled=self._cancelled,
            draft_tokens=self._draft_tokens,
            accepted_tokens=self._accepted_tokens,
        )


def _first_token(sequence: LiveSequence) -> FirstToken:
    assert sequence.admitted_at_s is not None
    return FirstToken(
        request_id=sequence.request_id,
        arrived_at_s=sequence.arrived_at_s,
        admitted_at_s=sequence.admitted_at_s,
        cached_tokens=sequence.cached_tokens,
        host_tokens=sequence.host_tokens,
        transferred_tokens=sequence.transferred_tokens,
    )
