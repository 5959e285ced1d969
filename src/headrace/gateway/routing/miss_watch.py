"""Why answers found less cached than they could have: looks at a bounded sample, after they have been sent.

The shell of `cache_misses/core`: reads requests, clock and CPU time. Per worker. Keeps keyed hashes and lengths, never
text.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic, thread_time

from headrace.cache_misses.core.fingerprint import FingerprintMaker
from headrace.cache_misses.core.judge import LEAST_LOST_RATIO, LEAST_LOST_TOKENS, Answered, Miss, judge
from headrace.cache_misses.core.rows import MissRows, RowKey
from headrace.cache_misses.core.segments import LONGEST_PROMPT_BYTES, UnreadableError, segments_of
from headrace.cache_misses.core.store import FingerprintStore, Scope, Seen
from headrace.declaration.routing_plan import RoutingPlan
from headrace.domain.miss_status import MissStatus
from headrace.domain.record import Record
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint

KEPT_BYTES = 8 * 1024 * 1024
"""Fingerprints of one worker; some 1,000 to 4,000 prompts. Chosen."""
CPU_RATIO = 0.01
"""Of one core: so much may be spent on fingerprints. Chosen."""
CPU_BURST_S = 0.5
"""May be saved up: at low traffic everything is looked at."""
MOST_VISITS = 10_000
"""Families remembered at endpoints; about 150 bytes each."""
SILENT_ANSWERS = 8
ASK_EVERY = 16
"""An engine whose answers never told how much was cached, so many in a row, is asked only now and then. Chosen."""
DIALECTS = frozenset((ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS, ApiDialect.RESPONSES, ApiDialect.MESSAGES))


class WatchedAttempt(Record):
    """An attempt where there was nothing to place: the model has one endpoint. Implements forwarding's `Placement`."""

    watch: "MissWatch"
    request: InferenceRequest
    endpoint: Endpoint
    sent_mono_s: float

    def first_token(self, now_mono_s: float) -> None:
        """Nothing waits for it here."""

    def ended(self, usage: TokenUsage, *, is_answered: bool) -> None:
        if is_answered:
            self.watch.hear(self, usage)


class MissWatch:
    """Concurrency: event loop only."""

    def __init__(self, load_secret: Callable[[], bytes]) -> None:
        self._load_secret = load_secret
        self._maker: FingerprintMaker | None = None
        self._store = FingerprintStore(KEPT_BYTES)
        self._rows = MissRows(monotonic())
        self._visits: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._hitting: set[str] = set()
        """Endpoints that have found something cached."""
        self._silent: dict[str, int] = {}
        """Endpoints with answers in a row that did not tell how much was cached."""
        self._turn = 0
        self.models: frozenset[str] = frozenset()
        """Those that are looked at."""
        self._left_s = CPU_BURST_S
        self._filled_mono_s = monotonic()
        self._answers = self._examined = self._suspects = self._suspects_examined = self._explained = 0
        self._cpu_s = 0.0

    def adopt(self, plans: Mapping[str, RoutingPlan]) -> None:
        """Look at the models whose plan says so; what is known of others is dropped when memory is needed."""
        self.models = frozenset(name for name, plan in plans.items() if plan.explains_misses)
        self._silent.clear()
        if not self.models:
            self._store = FingerprintStore(KEPT_BYTES)
            self._maker = None

    @property
    def by_cause(self) -> Mapping[str, tuple[int, int]]:
        """Misses and tokens lost since the start."""
        return {cause.value: counts for cause, counts in self._rows.by_cause.items()}

    def watch(self, request: InferenceRequest, endpoint: Endpoint) -> WatchedAttempt | None:
        """Return what is to hear of an attempt's end; None where nothing is to be learned from it."""
        if request.requested_model not in self.models:
            return None
        if self._silent and self._silent.get(endpoint.endpoint_id, 0) >= SILENT_ANSWERS:
            self._turn += 1
            if self._turn % ASK_EVERY:
                return None
        return WatchedAttempt(self, request, endpoint, monotonic())

    def hear(self, attempt: WatchedAttempt, usage: TokenUsage) -> None:
        """A watched attempt was answered."""
        name = attempt.endpoint.endpoint_id
        if usage.cached_input_tokens is None:
            self._silent[name] = self._silent.get(name, 0) + 1
            return
        if self._silent:
            self._silent.pop(name, None)
        self.note(attempt.request, attempt.endpoint, usage, attempt.sent_mono_s)

    def note(self, request: InferenceRequest, endpoint: Endpoint, usage: TokenUsage, sent_mono_s: float) -> None:
        """An answer came; look at it if it tells its cached tokens and there is CPU left for it."""
        told, cached = usage.input_tokens, usage.cached_input_tokens
        if told is None or cached is None or request.requested_model not in self.models:
            return
        self._answers += 1
        if cached:
            self._hitting.add(endpoint.endpoint_id)
        if request.dialect not in DIALECTS or len(request.body) > LONGEST_PROMPT_BYTES:
            return
        is_suspect = told - cached >= max(LEAST_LOST_TOKENS, LEAST_LOST_RATIO * told)
        self._suspects += is_suspect
        now_mono_s = monotonic()
        self._left_s = min(CPU_BURST_S, self._left_s + CPU_RATIO * (now_mono_s - self._filled_mono_s))
        self._filled_mono_s = now_mono_s
        if self._left_s < (0.0 if is_suspect else CPU_BURST_S / 2):
            return
        began_s = thread_time()
        self._suspects_examined += is_suspect
        self._examined += 1
        try:
            self._examine(request, endpoint, told, cached, sent_mono_s, now_mono_s)
        except UnreadableError:
            pass  # the engine has read it otherwise; nothing can be said of it
        spent_s = thread_time() - began_s
        self._left_s -= spent_s
        self._cpu_s += spent_s

    def _examine(
        self,
        request: InferenceRequest,
        endpoint: Endpoint,
        told: int,
        cached: int,
        sent_mono_s: float,
        now_mono_s: float,
    ) -> None:
        if self._maker is None:
            self._maker = FingerprintMaker(self._load_secret(), self._store.shapes)
        prompt = self._maker.make(segments_of(request.fields, request.dialect))
        if not prompt.shapes:
            return
        scope = (request.requested_model, request.tenant)
        siblings = self._store.find_siblings(scope, prompt, before_mono_s=sent_mono_s)
        version = f"{endpoint.plan.engine} {endpoint.plan.served_model}"
        family = siblings[0].family if siblings else prompt.shapes[0].masked
        visit = (family, endpoint.endpoint_id)
        answered = Answered(
            prompt=prompt,
            input_tokens=told,
            cached_tokens=cached,
            endpoint=endpoint.endpoint_id,
            version=version,
            outages=endpoint.outages,
            is_first_there=visit not in self._visits,
            endpoint_has_hits=endpoint.endpoint_id in self._hitting,
            cache_losses=endpoint.cache_losses,
        )
        miss = None if prompt.is_cut else judge(answered, siblings)
        if miss is not None:
            self._count(scope, miss, endpoint.endpoint_id, now_mono_s)
        self._visits[visit] = None
        self._visits.move_to_end(visit)
        if len(self._visits) > MOST_VISITS:
            self._visits.popitem(last=False)
        seen = Seen(
            scope=scope,
            family=family,
            prompt=prompt,
            endpoint=endpoint.endpoint_id,
            version=version,
            outages=endpoint.outages,
            ended_mono_s=now_mono_s,
            cache_losses=endpoint.cache_losses,
        )
        self._store.add(seen)

    def _count(self, scope: Scope, miss: Miss, endpoint: str, now_mono_s: float) -> None:
        self._explained += 1
        place = "" if miss.difference is None else str(miss.difference.place)
        key = RowKey(scope[0], scope[1], miss.family, miss.cause, place)
        scale = self._suspects / self._suspects_examined
        self._rows.add(key, miss, endpoint, scale=scale, now_mono_s=now_mono_s)

    def status(self) -> MissStatus:
        """What `headrace cache misses` shows of this worker."""
        return MissStatus(
            workers=1,
            answers=self._answers,
            examined=self._examined,
            explained=self._explained,
            kept_bytes=self._store.held_bytes,
            cpu_s=round(self._cpu_s, 6),
            rows=tuple(self._rows.shown(monotonic())),
        )
