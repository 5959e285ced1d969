"""The simulated engine behind its sockets: a request is read, queued in the model, and answered as tokens come due.

1. Faults and the phase (loading, ending, dead) may answer first.
2. The dialect reads the request and words refusals.
3. The pump (`pump.py`) steps the model in real time; each step's tokens become bytes here, before they are due.
4. What has ended is answered, counted and forgotten; a client that leaves frees its sequences.
"""

import asyncio
import secrets
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from functools import partial

from headrace.engines.simulated.ask import Api, AskError
from headrace.engines.simulated.config import EngineConfig, Role, TransferLoss
from headrace.engines.simulated.control import control_reply
from headrace.engines.simulated.dialects.contract import Dialect, Ending, EngineDiesError, Route
from headrace.engines.simulated.dialects.table import dialect_for
from headrace.engines.simulated.embedding_jobs import EmbeddingJob, EmbeddingJobs
from headrace.engines.simulated.faults import FaultBook, FaultKind
from headrace.engines.simulated.generation import (
    END_TOKEN,
    Choice,
    Generation,
    answer_of,
    bounded_by_stop,
)
from headrace.engines.simulated.handover import Handover
from headrace.engines.simulated.http import Connection, HttpRequest, Reply
from headrace.engines.simulated.kv_events import CacheTeller
from headrace.engines.simulated.pump import Pump, Write
from headrace.engines.simulated.slots import Slots
from headrace.engines.simulated.stats import MetricsView, RequestTimes, ServerStats
from headrace.engines.simulated.text import encode
from headrace.engines.simulated.transfer import Fetch
from headrace.engines.simulated.wrong_pages import WrongPages
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.outcome import Emission, FinishReason, Refusal, Step
from headrace.simulation.request import SimulatedRequest

REPLY_TOKENS = 1024
"""Of an answer, so many tokens can be found cached by a later turn."""

STREAM_FAULTS = (FaultKind.CUT, FaultKind.STALL, FaultKind.MALFORMED)


class Phase(StrEnum):
    LOADING = "loading"
    READY = "ready"
    ENDING = "ending"
    """SIGTERM came: what runs ends in the engine's own way."""


class Service:
    """One simulated engine. Concurrency: everything happens in the event loop's thread."""

    def __init__(self, config: EngineConfig, *, die: Callable[[str], None]) -> None:
        self.config = config
        self.dialect: Dialect = dialect_for(config)
        self.engine = SimulatedEngine(config.engine)
        self.pump = Pump(self.engine, self, time_scale=config.time_scale)
        self.pump.slowness = self._slowness
        self.pump.on_bug = self._end_of_bug
        self.faults = FaultBook(config.seed)
        self.faults.put(config.faults, time.monotonic())
        self.stats = ServerStats()
        self.phase = Phase.LOADING
        self.port = config.port
        """The port it really listens on."""
        self.on_faults_changed: Callable[[], None] = lambda: None
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the last request ended while the phase is ENDING."""
        self.handover = Handover(config, self.pump, self.faults, self.stats)
        self.started_mono_s = time.monotonic()
        self.started_at_s = time.time()  # noqa: TID251 # a timestamp on the page of metrics
        self.connections: set[Connection] = set()
        self._die = die
        self._routes: Mapping[tuple[str, str], Route] = self.dialect.routes()
        self._live: dict[str, tuple[Generation, Choice]] = {}
        self._embeddings = EmbeddingJobs(self.dialect, self.pump)
        self._generations: set[Generation] = set()
        self._slots = Slots(config.max_sequences if config.slot_dir else 0)
        self._after: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._pages = WrongPages(self.faults, self.dialect.not_found)
        self._window: tuple[float, int] = (self.started_mono_s, 0)
        self.cache_events = None if config.kv_events is None else CacheTeller(config, self.engine)
        if self.cache_events is not None:
            self._spawn(self.cache_events.serve())

    # connections (http.Listener)

    def on_open(self, connection: Connection) -> None:
        self.connections.add(connection)

    def on_gone(self, connection: Connection) -> None:
        self.connections.discard(connection)
        owner = connection.owner
        if isinstance(owner, Generation) and not owner.is_over:
            delay_s = self.dialect.abort_delay_s(is_stream=owner.ask.is_stream)
            asyncio.get_running_loop().call_later(delay_s, self._abort_generation, owner)
        elif isinstance(owner, EmbeddingJob):
            self._embeddings.drop(owner)

    def on_request(self, connection: Connection, request: HttpRequest) -> None:
        if request.path.startswith("/sim/"):
            control_reply(self, connection, request)
            return
        try:
            reply = self._answer(connection, request)
        except AskError as error:
            self.stats.failed += 1
            reply = self.dialect.error(error, self.dialect.apis.get(request.path))
        except EngineDiesError as error:
            self._die(str(error))
            return
        if reply is not None:
            connection.reply(reply)

    # what is asked

    def _answer(self, connection: Connection, request: HttpRequest) -> Reply | None:
        """Answer now, or None where the answer comes later."""
        if self.phase is Phase.LOADING:
            return self.dialect.loading_reply(request)
        is_post = request.method == "POST"
        api = self.dialect.apis.get(request.path) if is_post else None
        is_embedding = is_post and request.path == self.dialect.embeddings_path
        if is_embedding and not self.config.serves_embeddings:
            return self.dialect.no_embeddings()
        if api is None and not is_embedding:
            route = self._routes.get((request.method, request.path))
            if route is None:
                return self.dialect.not_found
            is_page = request.path.endswith("/metrics")
            return self._pages.serve(lambda: route(self, request)) if is_page else route(self, request)
        self._refuse_by_fault()
        if self.phase is Phase.ENDING and self.dialect.ending is Ending.REFUSES:
            raise self.dialect.refused_while_ending()
        self._number += 1
        self.stats.requests += 1
        if api is None:
            self._embeddings.start(connection, request, f"e{self._number}")
        else:
            self._generate(connection, request, api)
        return None

    def _refuse_by_fault(self) -> None:
        now_mono_s = time.monotonic()
        if fault := self.faults.draw(FaultKind.ERROR, now_mono_s):
            raise AskError(fault.status, "Simulated failure.", kind="InternalServerError")
        for kind in (FaultKind.DIE, FaultKind.OOM):
            found = self.faults.active(kind, now_mono_s)
            if found and found.after_tokens == 0 and self.faults.draw(kind, now_mono_s):
                raise EngineDiesError(OUT_OF_MEMORY if kind is FaultKind.OOM else "Simulated death.")

    def _generate(self, connection: Connection, request: HttpRequest, api: Api) -> None:
        ask = self.dialect.read(api, request)
        self.stats.choices.observe(ask.choices)
        made = secrets.token_hex(16)
        answer_id = self.dialect.answer_id(ask, request, made)
        leg = self.dialect.transfer(ask, answer_id)
        generation = Generation(connection, ask, self.dialect, answer_id=answer_id, name=str(self._number))
        now_mono_s = time.monotonic()
        kinds = STREAM_FAULTS if ask.is_stream else (FaultKind.MALFORMED,)
        generation.fault = next((f for kind in kinds if (f := self.faults.draw(kind, now_mono_s))), None)
        self._make_choices(generation)
        connection.owner = generation
        if isinstance(leg, Fetch):
            self._spawn(self._fetch_and_submit(generation, leg))
            return
        generation.hold = leg
        restored = self._slots.take_restored(generation)
        if self.config.request_overhead_s:
            delay_s = self.config.request_overhead_s / self.config.time_scale
            asyncio.get_running_loop().call_later(
                delay_s, partial(self._submit, generation, transferred_tokens=restored)
            )
        else:
            self._submit(generation, transferred_tokens=restored)

    def _make_choices(self, generation: Generation) -> None:
        """Decide what every choice says, before any of it is queued.

        Raises: AskError.
        """
        ask = generation.ask
        now_mono_s = time.monotonic()
        for prompt_index, prompt in enumerate(ask.prompts):
            limit_tokens = self.dialect.output_limit(ask, len(prompt.tokens))
            for number in range(ask.choices):
                index = prompt_index * ask.choices + number
                answer = answer_of(ask, prompt, index, self.config)
                answer, is_stopped = bounded_by_stop(ask, answer, limit_tokens)
                choice = Choice(
                    request_id=f"{generation.name}-{index}",
                    index=index,
                    prompt=prompt,
                    answer=answer,
                    output_tokens=max(answer.natural_tokens, 1) if is_stopped else answer.natural_tokens + END_TOKEN,
                    times=RequestTimes(arrived_at_s=now_mono_s, prompt_tokens=len(prompt.tokens)),
                )
                generation.choices.append(choice)

    def _submit(self, generation: Generation, *, transferred_tokens: int = 0) -> None:
        """Queue all choices; where one is refused, none runs."""
        is_open = generation.connection.is_open
        for choice in generation.choices if is_open else ():
            refusal = self.pump.submit(self._to_simulate(generation, choice, transferred_tokens))
            if refusal is not None:
                self._refuse(generation, choice, refusal)
                return
            self._live[choice.request_id] = (generation, choice)
        if is_open:
            self._generations.add(generation)
            generation.begin()

    def _to_simulate(self, generation: Generation, choice: Choice, transferred_tokens: int) -> SimulatedRequest:
        ask = generation.ask
        limit_tokens = self.dialect.output_limit(ask, len(choice.prompt.tokens))
        known = 0 if self.config.is_numbered else min(choice.answer.natural_tokens, limit_tokens, REPLY_TOKENS)
        return SimulatedRequest(
            request_id=choice.request_id,
            prompt_tokens=choice.prompt.tokens,
            output_tokens=choice.output_tokens,
            max_output_tokens=limit_tokens,
            salt=ask.body.cache_salt or "",
            priority=ask.body.priority or 0,
            reply_tokens=encode(choice.answer.text(0, known)) if known else None,
            is_prefill_only=generation.hold is not None,
            transferred_tokens=transferred_tokens,
            is_recomputed_on_transfer_loss=self.config.transfer_loss is TransferLoss.RECOMPUTE,
        )

    def _refuse(self, generation: Generation, choice: Choice, refusal: Refusal) -> None:
        self.stats.refused += 1
        self._cancel_choices(generation)
        error = self.dialect.refused(refusal, generation.ask, len(choice.prompt.tokens))
        generation.fail(error)

    # what the model does (pump.StepSink)

    def prepare(self, step: Step, due_mono_s: float) -> Sequence[Write]:
        writes: list[Write] = []
        gaps: dict[float, int] = {}
        live = self._live
        for first in step.first_tokens:
            if (entry := live.get(first.request_id)) is not None:
                generation, choice = entry
                generation.note_first_token(choice, first, self.pump.mono_s(first.admitted_at_s), due_mono_s)
                self.stats.ttft.observe(due_mono_s - choice.times.arrived_at_s)
        for emission in step.emissions:
            entry = live.get(emission.request_id)
            if entry is None:
                if (answer := self._embeddings.note(emission.request_id)) is not None:
                    self._after.append(answer)
                continue
            generation, choice = entry
            times = choice.times
            if times.output_tokens:
                gap_s = due_mono_s - times.last_token_at_s
                gaps[gap_s] = gaps.get(gap_s, 0) + 1
            times.last_token_at_s = due_mono_s
            times.output_tokens += emission.tokens
            is_middle = emission.tokens == 1 and emission.finish_reason is None and choice.sent_tokens
            if is_middle and generation.is_plain and generation.fault is None:
                writes.append((generation.connection, generation.take_one(choice)))
            else:
                self._take(generation, choice, emission, writes)
        for gap_s, times_seen in gaps.items():
            self.stats.itl.observe(gap_s, times_seen)
        return writes

    def _take(self, generation: Generation, choice: Choice, emission: Emission, writes: list[Write]) -> None:
        """A first or last token, several at once, or one that a fault may spoil."""
        if emission.finish_reason is FinishReason.ERROR:
            self._after.append(lambda: self._transfer_failed(generation))
            return
        data = generation.take(choice, emission)
        if generation.fault is not None or generation.is_stalled:
            data = self._broken(generation, choice, data)
        if data:
            writes.append((generation.connection, data))
        if emission.finish_reason is not None:
            self._end_choice(generation, choice)

    def _broken(self, generation: Generation, choice: Choice, data: bytes) -> bytes:
        was_stalled = generation.is_stalled
        data, after = generation.broken(choice, data)
        if after is not None:
            self._after.append(after)
            self._after.append(lambda: self._cancel_choices(generation))
            self._after.append(lambda: self._forget(generation))
        fault = generation.fault
        if generation.is_stalled and not was_stalled and fault is not None and fault.stall_s:
            asyncio.get_running_loop().call_later(fault.stall_s, self._resume, generation)
        return data

    def _resume(self, generation: Generation) -> None:
        generation.resume()
        if generation.is_over:
            self._forget(generation)

    def _end_choice(self, generation: Generation, choice: Choice) -> None:
        del self._live[choice.request_id]
        self.stats.finish(choice.times, choice.reason or "stop")
        self._slots.note_end(generation, choice)
        if generation.hold is not None:
            self._after += self.handover.hold(
                generation, choice, generation.hold, port=self.port, on_taken=lambda: self._finish(generation)
            )
        if generation.is_complete and not generation.is_stalled and not self._waits_for_fetch(generation):
            self._after.append(lambda: self._finish(generation))

    def _finish(self, generation: Generation) -> None:
        if not generation.is_over:
            generation.finish()
        self._forget(generation)

    def _forget(self, generation: Generation) -> None:
        self._generations.discard(generation)
        if self.phase is Phase.ENDING and not self._generations:
            self.on_idle()

    def delivered(self, step: Step, due_mono_s: float) -> None:
        if step.decode_sequences:
            self.stats.decode_steps += step.decode_sequences
            self.stats.slot_steps += 1
        self.stats.step_tokens.observe(step.prefill_tokens + step.decode_sequences)
        if self.cache_events is not None:
            self.cache_events.tell()
        after, self._after = self._after, []
        for act in after:
            act()
        fault = self.faults.active(FaultKind.DIE, time.monotonic()) if step.emissions else None
        if fault is not None and fault.after_tokens and self._longest_sent() > fault.after_tokens:
            self._die("Simulated death.")

    def _longest_sent(self) -> int:
        return max((choice.sent_tokens for _, choice in self._live.values()), default=0)

    # clients that leave, and other ends

    def _abort_generation(self, generation: Generation) -> None:
        """Free what a client left behind. vLLM counts such requests nowhere; SGLang does."""
        if generation.is_over:
            return
        generation.is_over = True
        self.stats.aborted += 1
        self._cancel_choices(generation)
        self._forget(generation)

    def _cancel_choices(self, generation: Generation) -> None:
        for choice in generation.choices:
            if self._live.pop(choice.request_id, None) is not None:
                self.pump.cancel(choice.request_id)
        if generation.hold is not None:
            self.handover.shelf.drop(generation.hold.key)

    def _transfer_failed(self, generation: Generation) -> None:
        self._fail(generation, AskError(500, "KVTransferError: KV was lost", kind="InternalServerError"))

    def _fail(self, generation: Generation, error: AskError) -> None:
        self.stats.failed += 1
        self._cancel_choices(generation)
        generation.fail(error)
        self._forget(generation)

    # disaggregation

    @staticmethod
    def _waits_for_fetch(generation: Generation) -> bool:
        return generation.hold is not None and generation.hold.waits_for_fetch

    async def _fetch_and_submit(self, generation: Generation, leg: Fetch) -> None:
        held = await self.handover.fetch(leg)
        if held is not None:
            self._submit(generation, transferred_tokens=held.tokens)
        elif self.config.transfer_loss is TransferLoss.RECOMPUTE:
            self._submit(generation)
        else:
            self._transfer_failed(generation)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # what the dialects' routes may do (dialects.contract.Host)

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY

    def slots(self) -> list[dict[str, object]]:
        running = self.engine.load().running
        return [
            {"id": number, "n_ctx": self.config.context_tokens, "is_processing": number < running}
            for number in range(self.config.max_sequences)
        ]

    def slot_tokens(self, slot: int) -> list[int]:
        return self._slots.tokens(slot)

    def restore_slot(self, slot: int, tokens: list[int]) -> None:
        self._slots.restore(slot, tokens)

    def abort(self, request_id: str | None) -> int:
        found = [g for g in self._generations if request_id is None or g.answer_id == request_id]
        for generation in found:
            self.stats.aborted += 1
            self._cancel_choices(generation)
            generation.fail(AskError(400, "Abort before prefill", kind="AbortError"))
            self._forget(generation)
        return len(found)

    def clear_cache(self) -> None:
        self.engine.clear_prefix_cache()
        if self.cache_events is not None:
            self.cache_events.tell(is_cleared=True)

    def take_cache_events(self) -> list[dict[str, object]]:
        return [] if self.cache_events is None else self.cache_events.take()

    def view(self) -> MetricsView:
        load = self.engine.load()
        now_mono_s = time.monotonic()
        since_mono_s, tokens = self._window
        rate = (load.generation_tokens - tokens) / max(now_mono_s - since_mono_s, 1e-3)
        if now_mono_s - since_mono_s > 1:
            self._window = (now_mono_s, load.generation_tokens)
        role = self.config.role
        return MetricsView(
            load=load,
            stats=self.stats,
            model=self.config.served_model,
            engine_type="unified" if role is Role.BOTH else role.value,
            context_tokens=self.config.context_tokens,
            block_tokens=self.config.engine.kv.block_tokens,
            kv_dtype=self.config.kv_cache_dtype,
            max_sequences=self.config.max_sequences,
            uptime_s=now_mono_s - self.started_mono_s,
            started_at_s=self.started_at_s,
            generation_tokens_per_s=rate,
            has_transfer=role is not Role.BOTH,
            iterations=self.pump.steps,
        )

    def _end_of_bug(self, error: Exception) -> None:
        self.pump.stop()
        self._die("".join(traceback.format_exception(error)))

    def _slowness(self) -> float:
        fault = self.faults.active(FaultKind.SLOW, time.monotonic())
        return 1.0 if fault is None else fault.factor

    # life

    def become_ready(self) -> None:
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    @property
    def is_idle(self) -> bool:
        return not self._generations and not self._embeddings

    def begin_ending(self) -> None:
        """SIGTERM: cut what runs, or let it finish, as the engine does."""
        self.phase = Phase.ENDING
        if self.dialect.ending is Ending.CUTS:
            self.cut_all()

    def cut_all(self) -> None:
        for generation in list(self._generations):
            self._cancel_choices(generation)
            generation.fail(self.dialect.cut_error())
        self._generations.clear()
        self.on_idle()

    def close(self) -> None:
        self.pump.stop()
        for task in self._tasks:
            task.cancel()
        if self.cache_events is not None:
            self.cache_events.close()
        for connection in list(self.connections):
            connection.close()


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. (simulated)"
