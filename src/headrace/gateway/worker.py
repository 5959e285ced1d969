"""One gateway process: composes the steps, adopts plans, accepts callers, drains. Counterpart: `fleet/deploy`.

The composition root of the request's side: with `pipeline.py` the only module that knows more than one step.
"""

import asyncio
import os
import socket
import ssl
import time
from collections import Counter
from pathlib import Path
from time import monotonic

import structlog

from headrace import __version__
from headrace.declaration.gateway_plan import GatewayPlan, LimitsPlan
from headrace.domain.clock import SystemClock
from headrace.domain.endpoint import EndpointState
from headrace.domain.miss_status import MissStatus
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota import Spent
from headrace.domain.quota_status import LimitStatus
from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.tenant import KeyRecord
from headrace.domain.worker import ExplainRoute, WorkerStatus
from headrace.gateway.accounting.account import Books
from headrace.gateway.accounting.counters import Counters
from headrace.gateway.accounting.exposition import Exposition, WorkerSample
from headrace.gateway.accounting.handover_exposition import HandoverBook, HandoverCollector
from headrace.gateway.accounting.identity_exposition import IdentityCollector
from headrace.gateway.accounting.miss_exposition import MissCollector
from headrace.gateway.accounting.queue_exposition import QueueCollector
from headrace.gateway.accounting.quota_exposition import QuotaCollector
from headrace.gateway.accounting.routing_exposition import RoutingCollector
from headrace.gateway.accounting.sharing_exposition import SharingCollector
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.gateway.admission.queue import AdmissionQueue
from headrace.gateway.admission.queue_view import queue_statuses
from headrace.gateway.admission.quota import Quota
from headrace.gateway.admission.sharing.keeper import LeaseKeeper
from headrace.gateway.admission.sharing.stores import SharingUnavailableError, open_keeper
from headrace.gateway.batches.line_socket import LineSocket
from headrace.gateway.batches.relay import FRAMING_BYTES, BatchLink
from headrace.gateway.endpoints.addresses import PlanError
from headrace.gateway.endpoints.cache_salt import CacheSalt, load_secret
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.discovery import DnsDiscovery
from headrace.gateway.endpoints.load_reader import LoadReader
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.endpoints.pool_loads import pool_loads
from headrace.gateway.endpoints.prober import Prober
from headrace.gateway.endpoints.seat import Seats
from headrace.gateway.endpoints.serving import auto_table, serving_table
from headrace.gateway.endpoints.status import endpoint_statuses
from headrace.gateway.entry.body_bounds import BodyBounds
from headrace.gateway.entry.fields import FieldPolicy
from headrace.gateway.entry.media import MediaPolicy
from headrace.gateway.entry.own_answers import CorsPolicy
from headrace.gateway.entry.reader import RequestReader
from headrace.gateway.entry.shaping import Shaper
from headrace.gateway.forwarding.core.failover import RetryLimits
from headrace.gateway.forwarding.core.retry_budget import RetryBudget
from headrace.gateway.forwarding.hedge import HedgeBook
from headrace.gateway.forwarding.ports import ForwardingSettings, resume_settings
from headrace.gateway.forwarding.warm_up import WarmUps
from headrace.gateway.http.caller_connection import CallerConnection
from headrace.gateway.http.certificate import ServerCertificate
from headrace.gateway.http.sweeper import SWEEP_INTERVAL_S, Sweeper
from headrace.gateway.http.wire import DateLine
from headrace.gateway.identity.reception import Reception, Trusts
from headrace.gateway.kv_events.reader import KvEventReader
from headrace.gateway.open_files import most_callers, raise_open_files
from headrace.gateway.pipeline import Pipeline, Rules
from headrace.gateway.routing.core.model_choice import ModelPace
from headrace.gateway.routing.disaggregation.handovers import Handovers
from headrace.gateway.routing.figures import routing_figures
from headrace.gateway.routing.model_chooser import Asks, ModelChooser
from headrace.gateway.routing.placer import Placer
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.view import routing_status
from headrace.gateway.tasks import keep, spawn
from headrace.gateway.worker_samples import (
    LoadWatch,
    limit_statuses,
    sample_endpoints,
    sample_issuers,
    sample_quota,
    sample_sharing,
)
from headrace.ledger.flusher import Flusher
from headrace.ledger.journal import JournalWriter
from headrace.ledger.lines import RotatingLines
from headrace.settings import Settings
from headrace.tenancy.keys import KeyRing

log = structlog.get_logger("headrace.gateway")
FIRST_PROBES_S = 2.0
"""Longest wait for the first probes before the listening socket is opened."""
PREFIX_SECRET_FILE = "prefix-index.secret"  # noqa: S105 (a file's name)
"""In the state folder, so that all workers name blocks alike."""
BACKLOG = 4096
"""Connections that may wait in the kernel, also while a worker is being replaced. Bounded by net.core.somaxconn."""


class Worker:
    """Implements `Service` for the wire. Concurrency: event loop only; the flusher has a thread of its own."""

    def __init__(
        self, settings: Settings, serial: int, listener: socket.socket, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._settings = settings
        self._serial = serial
        self._listener = listener
        self._loop = loop
        self._clock = SystemClock()
        self._counters = Counters()
        self._seats = Seats(serial, settings.slot_dir)
        self._directory = EndpointDirectory(loop, CacheSalt(settings.state_dir), self._seats)
        self._placer = Placer(lambda: load_secret(settings.state_dir / PREFIX_SECRET_FILE))
        self._handover_book = HandoverBook()
        self._handovers = Handovers(self._placer, self._handover_book.of)
        self._paces: dict[str, ModelPace] = {}
        self._budget = RetryBudget(ratio=0.0, minimum=0, now_mono_s=monotonic())
        self._resume_budget = RetryBudget(ratio=0.0, minimum=0, now_mono_s=monotonic())
        self._hedges = HedgeBook()
        self._books = Books(self._counters, record=lambda _: None, line=None)
        self._journal: JournalWriter | None = None
        self._lines: RotatingLines | None = None
        self._flusher: Flusher | None = None
        self._connections: set[CallerConnection] = set()
        self._open_files = raise_open_files()
        self._server: asyncio.Server | None = None
        self._certificate: ServerCertificate | None = None
        self._certificate_watch: asyncio.Task[None] | None = None
        self._keys: tuple[KeyRecord, ...] = ()
        self.plan: GatewayPlan | None = None
        self._sweeper = Sweeper(loop)
        self._reception = Reception(settings.run_dir, self._clock)
        self._background: list[asyncio.Task[None]] = []
        self._keeper: LeaseKeeper | None = None
        self._wall = WallOffset(self._clock.wall_s(), monotonic())
        self.pipeline = Pipeline(self._clock, self._books, Quota(LocalMeters(self._wall)), AdmissionQueue(loop))
        quotas = QuotaCollector(self._counters.tenants, lambda: sample_quota(self.pipeline.quota))
        sharing, queues = SharingCollector(lambda: sample_sharing(self._keeper)), QueueCollector(self.queue_statuses)
        issuers = IdentityCollector(lambda: sample_issuers(self._reception))
        misses = MissCollector(lambda: self._placer.misses.by_cause)
        handovers = HandoverCollector(lambda: self._handover_book.models)
        directory, placer = self._directory, self._placer
        self.loads = LoadWatch(
            directory, placer, self._counters, self._handover_book, lambda: self.pipeline.quota.speeds
        )
        self._cache_reader = KvEventReader(directory, on_emptied=placer.forget, on_held=placer.hold_at_most)
        routed = RoutingCollector(
            lambda: routing_figures(placer, self._paces), self._cache_reader.figures, lambda: pool_loads(directory)
        )
        more = (quotas, sharing, queues, issuers, misses, routed, handovers)
        self._exposition = Exposition(self._counters, self._sample, *more)
        self.head_arrived = self.pipeline.open  # the wire's Service: no method of ours in between
        self.request_arrived = self.pipeline.serve
        self.caller_left = self.pipeline.abandon
        self.date = DateLine()
        self.is_draining = False
        self._line_socket = LineSocket(self, self.pipeline.open_line, settings.line_socket(serial))
        self.limits: LimitsPlan
        self.gone = asyncio.Event()
        """Set when a drain has ended: the process may exit."""

    # --- plans and keys

    async def configure(self, plan: GatewayPlan) -> None:
        """Adopt `plan` whole. Raises: PlanError; then nothing has changed."""
        adoption = self._directory.prepare(plan)
        certificate = self._prepare_certificate(plan)
        trusts = self._prepare_identity(plan)
        if (self.plan is not None) and (certificate is None) != (self._certificate is None):
            raise PlanError("gateway.tls cannot be switched on or off while running; use headrace down and up")
        self._open_sharing(plan)
        self._reception.adopt(plan.identity, trusts)
        rules = self._make_rules(plan)
        self._open_books(plan)
        if certificate is not None and self._certificate is not None:
            self._certificate.follow(certificate)
        self._seats.adopt(plan)
        self._directory.adopt(adoption)
        self._placer.adopt(plan.routing)
        self._cache_reader.polls = plan.workers == 1
        self._counters.adopt((*plan.models, *(auto.name for auto in plan.auto_models)))
        tenancy = plan.tenancy
        names = tuple(tenant.name for tenant in tenancy.tenants)
        self._counters.tenants.adopt(names, tenancy.named_tenants, tenancy.currency)
        self._budget.adopt(ratio=plan.retry_budget_ratio, minimum=plan.retry_budget_minimum)
        self._hedges.adopt(plan.pools, monotonic())
        self._resume_budget.adopt(ratio=plan.resume.budget_ratio, minimum=plan.resume.budget_minimum)
        self.pipeline.quota.adopt(plan, self._keys, monotonic())
        self.pipeline.queue.adopt(plan, self._directory.of_pool, workers=plan.workers)
        link = self._settings.batch_socket
        self.pipeline.batches = None if plan.upload_bytes is None else BatchLink(link, plan.upload_bytes)
        self._use(rules)
        self.limits = plan.limits
        self.plan = plan
        if self._server is None:
            self._start_background()
            self._certificate = certificate
            await asyncio.gather(self._await_first_probes(), self._reception.wait_first(FIRST_PROBES_S))
            await self._listen()
            if certificate is not None:
                self._certificate_watch = keep(certificate.watch, "watch certificate")

    def set_keys(self, keys: tuple[KeyRecord, ...]) -> None:
        """Replace the known keys; in force for the next head that arrives."""
        self._keys = keys
        if self.plan is not None:
            self.pipeline.quota.adopt(self.plan, keys, monotonic())
            self._use(self._make_rules(self.plan))

    def _use(self, rules: Rules) -> None:
        self.pipeline.rules = rules
        self.pipeline.queue.use(rules.router)

    def set_spent(self, spent: tuple[Spent, ...]) -> None:
        """Count at least what the ledger knows to have been spent of budgets."""
        self.pipeline.quota.raise_spent(spent)

    def _make_rules(self, plan: GatewayPlan) -> Rules:
        models = serving_table(plan)
        router = Router(models, self._directory, self._placer, plan.routing, self._handovers)
        return Rules(
            reader=RequestReader(
                {**models, **auto_table(plan, models)},
                FieldPolicy(unknown_fields=plan.unknown_fields, allow_gated=plan.allow_gated),
                MediaPolicy(plan.media_hosts),
                Shaper(plan.allow_gated),
                self.pipeline.estimates,
                BodyBounds(fields=plan.limits.body_fields, values=plan.limits.body_values),
            ),
            identity=self._reception.identity(KeyRing(self._keys), plan.identity, plan.tenancy),
            router=router,
            cors=CorsPolicy(plan.cors_origins, plan.cors_max_age_s),
            forwarding=ForwardingSettings(
                loop=self._loop,
                candidates=router,
                budget=self._budget,
                retry=RetryLimits(max_attempts=plan.retry_max_attempts, backoff_s=plan.retry_backoff_s),
                resume=resume_settings(plan.resume, self._resume_budget),
                hedges=self._hedges,
                meters=self._counters,
                event_bytes=plan.limits.event_bytes,
                response_bytes=plan.limits.response_bytes,
                heartbeat_s=plan.heartbeat_s,
            ),
            models=plan.models,
            chooser=self._make_chooser(plan, router) if plan.auto_models else None,
        )

    def _make_chooser(self, plan: GatewayPlan, router: Router) -> ModelChooser:
        quote, wait_of = self.pipeline.quota.quote, self.pipeline.queue.expected_wait_s
        asks = Asks(quote=quote, wait_of=wait_of, tokens_of=self.pipeline.estimates.tokens_of)
        return ModelChooser(plan.auto_models, router, self._placer, self._paces, asks)

    def _open_sharing(self, plan: GatewayPlan) -> None:
        """Hold limits together with others, where the first plan says so."""
        if self.plan is not None:
            if plan.sharing != self.plan.sharing:
                raise PlanError("gateway.sharing cannot be changed while running; use headrace down and up")
            return
        try:
            socket_path = self._settings.leases_socket
            self._keeper = open_keeper(plan.sharing, socket_path, workers=plan.workers, wall=self._wall)
        except SharingUnavailableError as error:
            raise PlanError(str(error)) from error
        if self._keeper is not None:
            self.pipeline.quota.use_meters(self._keeper.desk)

    def _prepare_certificate(self, plan: GatewayPlan) -> ServerCertificate | None:
        if plan.tls_certificate is None or plan.tls_key is None:
            return None
        try:
            return ServerCertificate(plan.tls_certificate, plan.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise PlanError(f"gateway.tls: cannot use {plan.tls_certificate} with {plan.tls_key}: {error}") from error

    def _prepare_identity(self, plan: GatewayPlan) -> Trusts:
        try:
            return self._reception.prepare(plan.identity)
        except (OSError, ssl.SSLError) as error:
            raise PlanError(f"identity.oidc: a file of certificate authorities cannot be used: {error}") from error

    def _open_books(self, plan: GatewayPlan) -> None:
        if self._journal is None or self._lines is None or self._flusher is None:
            self._journal = JournalWriter(
                self._settings.journal_dir,
                worker=self._serial,
                pid=os.getpid(),
                started_at=time.time(),  # noqa: TID251 (names the segment, never subtracted)
                buffer_records=plan.buffer_records,
                segment_bytes=plan.segment_bytes,
                journal_bytes=plan.journal_bytes,
            )
            self._lines = RotatingLines(
                self._settings.log_dir / "requests.jsonl", log_bytes=plan.log_bytes, log_files=plan.log_files
            )
            self._flusher = Flusher([self._journal, self._lines], interval_s=plan.flush_interval_s)
            self._flusher.start()
        self._flusher.interval_s = plan.flush_interval_s
        self._lines.log_bytes, self._lines.log_files = plan.log_bytes, plan.log_files
        self._books.record = self._journal.append
        self._books.line = self._lines.append if plan.request_log else None

    # --- life

    def _start_background(self) -> None:
        self._sweeper.add(self._sweep)
        self._sweeper.add(self.pipeline.dispatcher.sweep)
        self._sweeper.add(self._budget.turn)
        self._sweeper.add(self._resume_budget.turn)
        self._sweeper.add(self._hedges.sweep)
        self._sweeper.add(self.pipeline.queue.sweep)
        self._sweeper.add(self._directory.sweep)
        self._sweeper.add(lambda now_mono_s: self._placer.sweep(self._directory, now_mono_s))
        self._sweeper.add(lambda _: self._handovers.sweep(self._directory))
        self._sweeper.add(self.loads.sweep)
        self._sweeper.start()
        self._background = [
            keep(Prober(self._directory).run, "prober"),
            keep(LoadReader(self._directory, self.pipeline.queue.note_reading).run, "load reader"),
            keep(self._cache_reader.run, "kv events"),
            keep(DnsDiscovery(self._directory, self._loop).run, "discovery"),
            keep(WarmUps(self._forwarding, self._slot_folders, self._cold_pairs).run, "hand-over warm-ups"),
        ]
        if self._keeper is not None:
            self._keeper.start()

    async def _await_first_probes(self) -> None:
        """Know the endpoints before callers come: a worker that replaces another must refuse nothing it would serve."""
        end_mono_s = monotonic() + FIRST_PROBES_S
        while monotonic() < end_mono_s and any(known.state is EndpointState.UNKNOWN for known in self._directory):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # bounded, and any probe may be the last one

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(
            lambda: CallerConnection(self, self._loop),
            sock=self._listener,
            ssl=self._certificate.context if self._certificate else None,
            backlog=BACKLOG,
        )
        if self.pipeline.batches is not None:
            await self._line_socket.listen(self._loop)

    def drain(self, bound_s: float, *, is_replacement: bool) -> None:
        """Stop accepting, finish what is in work, end the rest in-band after `bound_s`, and set `gone`.

        In force when this returns; the rest goes on in the background.
        """
        if self.is_draining:
            return
        self.is_draining = True
        self.pipeline.refuses_new = not is_replacement
        if self._server is not None:
            self._server.close()
        self._line_socket.close()
        spawn(self._finish(bound_s, is_replacement=is_replacement), "drain")

    async def _finish(self, bound_s: float, *, is_replacement: bool) -> None:
        deadline = monotonic() + bound_s
        while monotonic() < deadline and self._has_work(is_replacement=is_replacement):  # noqa: ASYNC110
            await asyncio.sleep(SWEEP_INTERVAL_S / 5)  # a drain ends by many causes: no one event says so
        self.pipeline.refuses_new = True
        self.pipeline.dispatcher.end_all()
        for connection in list(self._connections):
            connection.close_if_idle()
        await asyncio.sleep(0.05)  # lets the last bytes reach the kernel
        await self._stop()

    def _has_work(self, *, is_replacement: bool) -> bool:
        if not is_replacement:
            for connection in list(self._connections):
                connection.close_if_idle()
        # When replaced, an idle connection may carry one more request any moment: it is answered, then closed.
        return bool(self._connections) if is_replacement else self.pipeline.dispatcher.active > 0

    async def _stop(self) -> None:
        for task in (*self._background, *([self._certificate_watch] if self._certificate_watch else [])):
            task.cancel()
        self._sweeper.stop()
        self._reception.close()
        for connection in list(self._connections):
            connection.abort()
        for endpoint in self._directory:
            endpoint.connections.close()
        if self._keeper is not None:
            await self._keeper.close()
        if self._flusher is not None:
            await self._loop.run_in_executor(None, self._flusher.close)
        self.gone.set()

    # --- hand-overs between endpoints

    def _forwarding(self) -> ForwardingSettings | None:
        rules = self.pipeline.rules
        return None if rules is None or self.is_draining else rules.forwarding

    def _slot_folders(self) -> frozenset[Path]:
        return self._seats.folders(self.plan.pools if self.plan is not None else ())

    def _cold_pairs(self) -> list[ChosenPair]:
        return [] if self.pipeline.rules is None else self.pipeline.rules.router.cold_pairs()

    # --- Service, for the wire

    def connection_opened(self, connection: CallerConnection) -> bool:
        if len(self._connections) >= most_callers(self._open_files, self.limits.connections):
            return False
        self._connections.add(connection)
        return True

    def line_opened(self, connection: CallerConnection) -> bool:
        """A line of a batch comes: their number has its own bound."""
        self._connections.add(connection)
        return True

    def longest_body(self, path: bytes) -> int:
        batches = self.pipeline.batches
        return batches.upload_bytes + FRAMING_BYTES if batches and path == b"/v1/files" else self.limits.body_bytes

    def connection_closed(self, connection: CallerConnection) -> None:
        self._connections.discard(connection)

    def _sweep(self, now_mono_s: float) -> None:
        self.date.refresh()
        for connection in list(self._connections):
            connection.sweep(now_mono_s)
        self._wall.follow(self._clock.wall_s(), now_mono_s)
        busy = Counter(endpoint.plan.name for endpoint in self._directory if endpoint.in_flight)
        self.pipeline.quota.sweep(busy, now_mono_s)

    # --- what the supervisor asks for

    def routing_status(self) -> RoutingStatus:
        return routing_status(self._placer)

    def miss_status(self) -> MissStatus:
        return self._placer.misses.status()

    def explain_route(self, wish: ExplainRoute) -> RouteExplanation:
        """Say where a request would go now. Raises: RequestError, as the request itself would be refused."""
        return self.pipeline.explain_route(wish)

    def metrics_text(self) -> str:
        return self._exposition.text()

    def queue_statuses(self) -> list[QueueStatus]:
        """The queue of each model."""
        return queue_statuses(self.pipeline.queue, monotonic(), self._clock.wall_s())

    def quota_status(self) -> tuple[LimitStatus, ...]:
        """Every limit and what is used of it, as far as this worker knows."""
        now_mono_s = monotonic()
        return limit_statuses(self.pipeline.quota.iter_meters(self._keys, now_mono_s), now_mono_s)

    def status(self) -> WorkerStatus:
        rules = self.pipeline.rules
        return WorkerStatus(
            pid=os.getpid(),
            version=__version__,
            plan_revision=self.plan.revision if self.plan else 0,
            is_ready=rules is not None and rules.router.is_ready() and not self.is_draining,
            is_draining=self.is_draining,
            in_flight=self.pipeline.quota.in_flight,
            connections=len(self._connections),
            requests=self._counters.requests,
            endpoints=endpoint_statuses(self._directory),
            handovers=tuple(self._handovers.fits.models.values()),
            journal_dropped=self._journal.dropped if self._journal else 0,
            journal_pending=self._journal.pending if self._journal else 0,
            sharing_trouble=self._keeper.desk.trouble if self._keeper else None,
        )

    def _sample(self) -> WorkerSample:
        return WorkerSample(
            in_flight=self.pipeline.quota.in_flight,
            connections=len(self._connections),
            journal_dropped=self._journal.dropped if self._journal else 0,
            journal_pending=self._journal.pending if self._journal else 0,
            log_dropped=self._lines.dropped if self._lines else 0,
            endpoints=sample_endpoints(self._directory),
        )
