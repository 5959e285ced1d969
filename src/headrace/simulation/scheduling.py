"""What one step computes: which prompts go on, who starts, and who has to give way when KV blocks run out."""

from dataclasses import dataclass, field

from headrace.simulation.decoding import Decoding, decoding_for
from headrace.simulation.kv import cache_for
from headrace.simulation.model import AdmissionOrder, EngineModel
from headrace.simulation.sequence import LiveSequence, Phase
from headrace.simulation.waiting import WaitingLine, line_for


@dataclass(slots=True, kw_only=True)
class StepWork:
    """What a step computes besides decoding. Units as in `StepClock`."""

    budget_tokens: int
    """What is left of the token budget."""
    prefill_tokens: int = 0
    prefill_pairs: int = 0
    prefill_kv_tokens: int = 0
    completed: list[LiveSequence] = field(default_factory=list[LiveSequence])
    """Sequences whose last missing token is computed: each gets its next token in this step."""
    preempted: list[str] = field(default_factory=list[str])


class Scheduler:
    """Who waits, who runs and who holds which KV. Its methods change that and add to a `StepWork`."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._bounds = model.bounds
        self.kv = cache_for(model)
        self.waiting: WaitingLine = line_for(model.bounds.order)
        self.running: dict[str, LiveSequence] = {}
        """In the order of their admission."""
        self.prefilling: dict[str, LiveSequence] = {}
        self.loading: dict[str, LiveSequence] = {}
        self.decoding: Decoding = decoding_for(model.kv.block_tokens, model.speculation)
        self.preemptions = 0
        self.prefix_query_tokens = 0
        self.prefix_hit_tokens = 0
        self.host_hit_tokens = 0
        self._reserved_tokens = 0
        self._stuck: tuple[str, int] | None = None
        """Who found no room, and the state of memory then: no use to look again before something is released."""

    # Making room

    def make_room_to_decode(self, work: StepWork) -> None:
        """Preempt until the next decode step finds the blocks it takes."""
        while self.decoding.sequences and self.decoding.blocks_needed > self.kv.available_blocks:
            work.preempted.append(self._preempt(self._last_in_turn()))

    def _last_in_turn(self) -> LiveSequence:
        """Return who gives way first: the newest, or the least important and then newest."""
        if self._bounds.order is AdmissionOrder.FCFS:
            return self.running[next(reversed(self.running))]
        return max(self.running.values(), key=lambda sequence: (sequence.request.priority, sequence.order))

    def _preempt(self, sequence: LiveSequence) -> str:
        """Take a sequence's blocks away; it goes back to the line and will compute all of it again."""
        self.drop(sequence)
        sequence.phase = Phase.WAITING
        sequence.kv_tokens = sequence.allocated_tokens = 0
        sequence.target_tokens = sequence.input_tokens + sequence.emitted
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.add(sequence)
        return sequence.request_id

    def drop(self, sequence: LiveSequence) -> None:
        """Take a sequence out of whatever it is in, and release its blocks."""
        self.detach(sequence)
        self.kv.release(sequence, sequence.kv_tokens, sequence.allocated_tokens)

    def detach(self, sequence: LiveSequence) -> None:
        """Take a sequence out of whatever it is in; its blocks stay."""
        match sequence.phase:
            case Phase.WAITING:
                self.waiting.remove(sequence)
                return
            case Phase.LOADING:
                del self.loading[sequence.request_id]
            case Phase.PREFILL:
                self.prefilling.pop(sequence.request_id, None)
            case Phase.DECODE:
                if sequence.request_id in self.decoding.sequences:
                    self.decoding.remove(sequence)
        del self.running[sequence.request_id]
        self._reserved_tokens -= sequence.reserved_tokens

    # Prompts under way

    def finish_loading(self, now_s: float) -> None:
        """KV that has arrived by now counts as computed."""
        arrived = [sequence for sequence in self.loading.values() if sequence.ready_at_s <= now_s]
        for sequence in arrived:
            self.end_loading(sequence, sequence.allocated_tokens)

    def end_loading(self, sequence: LiveSequence, kv_tokens: int) -> None:
        """Go on with a prompt of which this much KV is there; blocks for more are given back."""
        del self.loading[sequence.request_id]
        lost_blocks = self.kv.blocks_for(sequence.allocated_tokens) - self.kv.blocks_for(kv_tokens)
        if lost_blocks:
            self.kv.give_back(lost_blocks)
        sequence.kv_tokens = sequence.allocated_tokens = kv_tokens
        sequence.phase = Phase.PREFILL
        self.prefilling[sequence.request_id] = sequence
        self.kv.publish(sequence, kv_tokens)

    def continue_prompts(self, work: StepWork, *, is_decoding: bool) -> None:
        """Compute more of the prompts that have started, each in its turn; newer ones give way if blocks run out."""
        for sequence in sorted(self.prefilling.values(), key=self.kv.turn_of):
            missing_tokens = sequence.target_tokens - sequence.kv_tokens
            tokens = min(work.budget_tokens, missing_tokens)
            is_partial = tokens < missing_tokens and not self._bounds.is_prefill_chunked
            if tokens <= 0 or is_partial or sequence.phase is not Phase.PREFILL:
                continue
            if self._find_room(sequence, tokens, work, is_decoding=is_decoding):
                self.kv.take(self._blocks_to_grow(sequence, tokens))
                self._compute(sequence, tokens, work)

    def _blocks_to_grow(self, sequence: LiveSequence, tokens: int) -> int:
        return self.kv.blocks_for(sequence.kv_tokens + tokens) - self.kv.blocks_for(sequence.allocated_tokens)

    def _find_room(self, sequence: LiveSequence, tokens: int, work: StepWork, *, is_decoding: bool) -> bool:
        needed = self._blocks_to_grow(sequence, tokens)
        while needed > self._spare_blocks(is_decoding=is_decoding):
            last = self._last_in_turn()
            if last is sequence or last in work.completed:
                return False
            work.preempted.append(self._preempt(last))
        return True

    def _spare_blocks(self, *, is_decoding: bool) -> int:
        """Return the available blocks that this step's decoding does not need."""
        return self.kv.available_blocks - (self.decoding.blocks_needed if is_decoding else 0)

    def _compute(self, sequence: LiveSequence, tokens: int, work: StepWork) -> None:
        """Add a chunk of a prompt to the step. Its blocks can be found at once, as in vLLM."""
        start = sequence.kv_tokens
        sequence.kv_tokens = sequence.allocated_tokens = start + tokens
        work.budget_tokens -= tokens
        work.prefill_tokens += tokens
        work.prefill_pairs += tokens * start + tokens * (tokens + 1) // 2
        work.prefill_kv_tokens += start + tokens
        self.kv.publish(sequence, start + tokens)
        if sequence.kv_tokens == sequence.target_tokens:
            work.completed.append(sequence)

    # Starting what waits

    @property
    def is_stuck(self) -> bool:
        """Nothing that waits can start before something that runs ends."""
        if not self.waiting or len(self.running) >= self._bounds.max_sequences:
            return True
        return self._stuck == (self.waiting.peek().request_id, self.kv.releases)

    def admit(self, now_s: float, work: StepWork, *, is_decoding: bool) -> None:
        """Start waiting requests in their turn, while budget, sequences and blocks allow."""
        while (work.budget_tokens > 0 or self.kv.is_assigned_first) and not self.is_stuck:
            if not self._try_start(self.waiting.peek(), now_s, work, is_decoding=is_decoding):
                break

    def _try_start(self, sequence: LiveSequence, now_s: float, work: StepWork, *, is_decoding: bool) -> bool:
        device_tokens, host_tokens = self.kv.match(sequence)
        transferred_tokens = 0
        if sequence.request.transferred_tokens and not sequence.preemptions:
            host_tokens = 0
            reachable = min(sequence.request.transferred_tokens, sequence.target_tokens - 1)
            transferred_tokens = max(0, reachable - device_tokens)
        loaded_tokens = host_tokens + transferred_tokens
        is_only_assigned = self.kv.is_assigned_first and not loaded_tokens
        missing_tokens = sequence.target_tokens - device_tokens
        is_whole = not self._bounds.is_prefill_chunked and not loaded_tokens and not is_only_assigned
        if is_whole and missing_tokens > work.budget_tokens:
            self.kv.abandon(sequence)
            return False
        tokens = loaded_tokens or (missing_tokens if is_only_assigned else min(work.budget_tokens, missing_tokens))
        blocks = self.kv.blocks_for(device_tokens + tokens) - self.kv.blocks_for(device_tokens)
        spare = self._spare_blocks(is_decoding=is_decoding) - self._blocks_to_reserve(sequence, device_tokens + tokens)
        if blocks > spare:
            self.kv.abandon(sequence)
            self._stuck = (sequence.request_id, self.kv.releases)
            return False
        self.waiting.remove(sequence)
        self._start(sequence, now_s, device_tokens=device_tokens)
        if is_only_assigned:
            self.prefilling[sequence.request_id] = sequence
            return True
        self.kv.take(blocks)
        if loaded_tokens:
            self._load(sequence, now_s, host_tokens=host_tokens, transferred_tokens=transferred_tokens)
        else:
            self.prefilling[sequence.request_id] = sequence
            self._compute(sequence, tokens, work)
        return True

    def _start(self, sequence: LiveSequence, now_s: float, *, device_tokens: int) -> None:
        sequence.phase = Phase.PREFILL
        sequence.kv_tokens = sequence.allocated_tokens = device_tokens
        self.running[sequence.request_id] = sequence
        self._reserved_tokens += sequence.reserved_tokens
        if sequence.admitted_at_s is None:
            sequence.admitted_at_s = now_s
            sequence.cached_tokens = device_tokens
            self.prefix_query_tokens += sequence.input_tokens
            self.prefix_hit_tokens += device_tokens

    def _load(self, sequence: LiveSequence, now_s: float, *, host_tokens: int, transferred_tokens: int) -> None:
        """Wait for KV from elsewhere; blocks for it are taken already."""
        bytes_per_token = self._model.kv.bytes_per_token
        load_s = 0.0
        if host_tokens and self._model.host:
            load_s = host_tokens * bytes_per_token / self._model.host.return_bytes_per_s
        if transferred_tokens:
            load_s = self._model.link.transfer_s(transferred_tokens * bytes_per_token)
        sequence.phase = Phase.LOADING
        sequence.ready_at_s = now_s + load_s
        sequence.allocated_tokens += host_tokens + transferred_tokens
        self.loading[sequence.request_id] = sequence
        if not sequence.preemptions:
            sequence.host_tokens, sequence.transferred_tokens = host_tokens, transferred_tokens
            sequence.cached_tokens += host_tokens + transferred_tokens
            self.host_hit_tokens += host_tokens

    def _blocks_to_reserve(self, sequence: LiveSequence, tokens_then: int) -> int:
        """Return the blocks that must stay spare for what runs and for this one, by the model's ratio."""
        ratio = self._bounds.reserved_output_ratio
        if not ratio or not self.running:
            return 0
        under_way = sum(other.allocated_tokens for other in (*self.prefilling.values(), *self.loading.values()))
        growth_tokens = self._reserved_tokens - self.decoding.kv_tokens - under_way
        growth_tokens += sequence.reserved_tokens - tokens_then
        return self.kv.blocks_for(int(ratio * growth_tokens)) + int(ratio * (len(self.running) + 1))
