"""The request's story, step by step: the table of contents of this package.

Steps 1 to 4 are plain calls that return or raise `RequestError`; step 5 calls back. No task and no await: on the hot
path they would cost as much as half of all the checks together (docs/decisions/0001).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

import structlog

from headrace.domain.clock import Clock
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest, RequestClass
from headrace.domain.routing_status import RouteExplanation
from headrace.domain.tenant import Caller
from headrace.domain.worker import ExplainRoute
from headrace.gateway.accounting.account import Account, Books
from headrace.gateway.admission.model_queue import GatewayTicket
from headrace.gateway.admission.queue import AdmissionQueue
from headrace.gateway.admission.quota import Quota, Ticket
from headrace.gateway.batches.line_socket import read_submitter
from headrace.gateway.batches.relay import BatchLink, Relay
from headrace.gateway.entry.head import HeadReader, RequestHead
from headrace.gateway.entry.own_answers import CorsPolicy, list_models, refuse, show_model
from headrace.gateway.entry.reader import RequestReader, model_not_found
from headrace.gateway.entry.request_class import CLASS_HEADER, class_of
from headrace.gateway.entry.routes import ONE_MODEL, Route, find_route
from headrace.gateway.entry.token_estimate import TokenEstimates
from headrace.gateway.forwarding.delivery import Delivery
from headrace.gateway.forwarding.dispatcher import Dispatcher
from headrace.gateway.forwarding.ports import ForwardingSettings
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.wire import JSON_TYPE
from headrace.gateway.identity.bearer import Identity
from headrace.gateway.routing.debug_header import ASKS as EXPLAIN_ASKS
from headrace.gateway.routing.debug_header import route_line
from headrace.gateway.routing.model_chooser import ModelChooser
from headrace.gateway.routing.pins import AnswerPins
from headrace.gateway.routing.router import Router

log = structlog.get_logger("headrace.gateway")
PAUSES_MOST = 60
"""Exchanges of shares that one request waits for: one is enough, unless others hold or took what it asked for."""
RESPONSES = ApiDialect.RESPONSES.value
CLASS_NAMES = {each: each.value for each in RequestClass}
"""`.value` takes two calls of Python code."""
Identify = Callable[[Exchange, float], Caller]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that a plan decides, ready to use; replaced whole, in one turn of the loop."""

    reader: RequestReader
    identity: Identity
    router: Router
    cors: CorsPolicy
    forwarding: ForwardingSettings
    models: tuple[str, ...]
    chooser: ModelChooser | None = None
    """None: no name stands for several models."""


class Pipeline:
    """Carries each request from its head to its settled account; every one ends in exactly one Outcome."""

    def __init__(self, clock: Clock, books: Books, quota: Quota, queue: AdmissionQueue) -> None:
        self._clock = clock
        self._heads = HeadReader()
        self._books = books
        self.quota = quota
        self.queue = queue
        self.estimates = TokenEstimates()
        self.dispatcher = Dispatcher()
        self._pins = AnswerPins()
        self.batches: BatchLink | None = None
        """The way to files and batches, where they are served."""
        self.rules: Rules | None = None
        """None until the first plan: everything is answered `draining`-like, since no port is open yet."""
        self.refuses_new = False
        """True while draining for a shutdown: what is in work goes on, nothing new begins."""

    # --- the story

    def open_line(self, exchange: Exchange) -> None:
        """1 entry, 2 identity, for a line of a batch: it comes from the process beside us, in its submitter's name."""
        self.open(exchange, self._identify_line)

    def open(self, exchange: Exchange, identify: Identify | None = None) -> None:
        """1 entry, 2 identity: the head alone, before any body is read."""
        received_at = self._clock.wall_s()
        head = self._heads.read(exchange, received_at)
        account = Account(self._books, head.uid, head.request_id, head.trace_id, received_at)
        exchange.state = Progress(self, exchange, head, account)
        route = head.route
        if exchange.error is not None or route is None:
            return
        account.dialect = route.dialect_name
        if self.refuses_new and route.needs_key:
            exchange.error = RequestError(ErrorCode.DRAINING, "the gateway is shutting down; send the request again")
        elif route.needs_key and exchange.method != b"OPTIONS":
            try:
                rules = self.rules or self._current()
                account.caller = (identify or rules.identity.identify)(exchange, received_at)
                if route.is_stored:
                    self._open_stored(exchange, account.caller)
            except RequestError as error:
                exchange.error = error
                if account.caller is None:
                    account.refused = self._find_refused(exchange, is_line=identify is not None)
            except Exception as bug:  # noqa: BLE001 (boundary, as in `serve`)
                exchange.error = exchange.state.report(bug)

    def serve(self, exchange: Exchange) -> None:
        """The whole request is here, or `exchange.error` says why it never will be."""
        state = exchange.state
        progress = state if isinstance(state, Progress) else self._progress(exchange)
        try:
            self._serve(exchange, progress)
        except RequestError as error:
            progress.refuse(error)
        except Exception as bug:  # noqa: BLE001 (boundary: the caller gets an id, the log the traceback)
            progress.crashed(bug)

    def resume(self, progress: "Progress", request: InferenceRequest, caller: Caller) -> None:
        """Go on with a request that waited for an exchange of shares with other processes."""
        try:
            self._admit(progress, request, caller, monotonic())
        except RequestError as error:
            progress.refuse(error)
        except Exception as bug:  # noqa: BLE001 (boundary, as in `serve`)
            progress.crashed(bug)

    def abandon(self, exchange: Exchange) -> None:
        """The caller has gone before its request was complete, or before its turn came."""
        if isinstance(exchange.state, Progress):
            exchange.state.failed(RequestError(ErrorCode.CALLER_DISCONNECTED, "the caller closed its connection"))

    def _serve(self, exchange: Exchange, progress: "Progress") -> None:
        head, account, rules = progress.head, progress.account, self.rules or self._current()
        account.began_mono_s = exchange.received_mono_s
        if exchange.error is not None:
            raise exchange.error
        route, caller = head.route, account.caller
        if route is None or route.dialect is None or caller is None or exchange.method == b"OPTIONS":
            self._answer_ourselves(exchange, progress)
            return
        request = rules.reader.read(  # 1 entry
            exchange.body,
            route,
            route.dialect,
            lambda answer_id: self._pins.find(caller.tenant, answer_id),
            caller.regions,
        )
        exchange.body = b""
        request.tenant, request.request_class = caller.tenant, caller.default_class
        account.model = name = request.requested_model
        account.counted = self._books.counters.of(name)
        if CLASS_HEADER in exchange.headers:
            request.request_class = class_of(exchange.headers, caller)
        account.is_stream = request.is_stream
        if rules.chooser is not None and name in rules.chooser:
            self._choose_model(account, request, caller, rules.chooser)
        elif caller.models is not None and not caller.may_use(name):  # 2 identity
            raise model_not_found(name)
        account.request_class = CLASS_NAMES[request.request_class]
        if EXPLAIN_ASKS in exchange.headers:
            request = self.quota.fit(caller, request, exchange.received_mono_s)
            self._explain(progress, request, rules)
        self._admit(progress, request, caller, exchange.received_mono_s)

    def _choose_model(self, account: Account, request: InferenceRequest, caller: Caller, chooser: ModelChooser) -> None:
        """4 routing, its first half: the name stands for several models. Refusals count as the name's."""
        if not chooser.visible_to(request.requested_model, caller):
            raise model_not_found(request.requested_model)
        chooser.choose(request, caller)
        account.counted = self._books.counters.of(request.requested_model)

    def _identify_line(self, exchange: Exchange, now_at: float) -> Caller:
        return self._current().identity.identify_submitter(read_submitter(exchange), now_at)

    def _find_refused(self, exchange: Exchange, *, is_line: bool) -> Caller | None:
        """Who was refused by identity, for log and ledger."""
        if self.rules is None:
            return None
        identity = self.rules.identity
        if not is_line:
            return identity.find_refused(exchange)
        with suppress(RequestError):
            return identity.refused_submitter(read_submitter(exchange))
        return None

    def _open_stored(self, exchange: Exchange, caller: Caller) -> None:
        """Files and batches: what is uploaded goes through as it comes."""
        if self.batches is None:
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, "files and batches are switched off here (batch.enabled)")
        is_creation = exchange.method == b"POST"
        if is_creation and exchange.path == b"/v1/batches" and RequestClass.OFFLINE not in caller.classes:
            message = "a batch is sent as class offline, which this key may not use; ask the operator"
            raise RequestError(ErrorCode.FORBIDDEN, message)
        submitter = self._current().identity.submitter_of(caller)
        is_upload = is_creation and exchange.path == b"/v1/files"
        self._progress(exchange).relay = self.batches.begin(exchange, submitter, is_upload=is_upload)

    def _explain(self, progress: "Progress", request: InferenceRequest, rules: Rules) -> None:
        """Show whoever sends an admin key with the request where it would go now."""
        if not rules.identity.is_admin(progress.exchange.headers[EXPLAIN_ASKS], self._clock.wall_s()):
            raise RequestError(ErrorCode.FORBIDDEN, "x-headrace-explain must be an admin key; leave it out")
        progress.head.reply_lines += route_line(rules.router.explain(request))

    def explain_route(self, wish: ExplainRoute) -> RouteExplanation:
        """Say where a request would go now. Raises: RequestError, as the request itself would be refused."""
        rules, route = self.rules, find_route(wish.path.encode("utf-8", "replace"))
        if rules is None or route is None or route.dialect is None:
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, f"no request is answered at {wish.path}")
        request = rules.reader.read(wish.body.encode(), route, route.dialect, lambda _: None)
        request.tenant = wish.tenant
        if wish.request_class is not None:
            request.request_class = RequestClass(wish.request_class)
        name, chooser = request.requested_model, rules.chooser
        if chooser is not None and name in chooser:
            caller = rules.identity.stand_in(wish.tenant) if wish.tenant else None
            if not chooser.visible_to(name, caller):
                raise model_not_found(name)
            return chooser.explain(request, caller)
        return rules.router.explain(request)

    def _admit(self, progress: "Progress", request: InferenceRequest, caller: Caller, now_mono_s: float) -> None:
        """3 admission and on; again later, where a shared limit has to be asked for elsewhere first."""
        exchange, head, account = progress.exchange, progress.head, progress.account
        rules = self.rules or self._current()
        counted = account.counted or self._books.counters.unknown
        progress.request = request
        resume = progress.resume if progress.pauses < PAUSES_MOST else None
        ticket = progress.ticket = self.quota.reserve(caller, request, now_mono_s, resume)
        if ticket is None:
            progress.pauses += 1
            return
        request = ticket.request
        deadline_mono_s = None if head.timeout_s is None else exchange.received_mono_s + head.timeout_s
        place: GatewayTicket | None = None
        if self.queue.has_lanes:
            enter = self.queue.enter if request.choice is None else self._enter
            place = enter(request, caller, exchange.received_mono_s, deadline_mono_s, exchange.headers)
            progress.place = place
            if place is not None and place.degraded is not None:
                self._note_degraded(progress, place)
                request = place.request
        reply_lines = head.reply_lines
        if rules.cors.has_origins:
            reply_lines = rules.cors.add_lines(reply_lines, exchange)
        if ticket.headers is not None:
            reply_lines += ticket.headers.lines(exchange.received_mono_s)
        delivery = progress.delivery = Delivery(  # 4 routing, 5 forwarding
            request,
            exchange,
            account,
            progress,
            rules.forwarding,
            counted,
            reply_lines,
            head.engine_lines,
            deadline_mono_s,
            exchange.received_mono_s,
        )
        ticket.answer = delivery
        if place is None:
            self.dispatcher.dispatch(delivery)
            return
        place.held = delivery
        claim, place.claim = place.claim, None  # handed over
        if claim is not None:
            self.dispatcher.dispatch(delivery, claim)
        else:
            self.dispatcher.hold(delivery)
            self.queue.wait(place)

    def _enter(
        self,
        request: InferenceRequest,
        caller: Caller,
        now: float,
        deadline_mono_s: float | None,
        headers: Mapping[bytes, bytes],
    ) -> GatewayTicket | None:
        """Into the queue of its model or, where that has no place for it and others would do, into theirs."""
        while True:
            try:
                return self.queue.enter(request, caller, now, deadline_mono_s, headers)
            except RequestError:
                if not self._current().router.move_on(request):
                    raise

    def _note_degraded(self, progress: "Progress", place: GatewayTicket) -> None:
        """Its tenant has declared what is to be done rather than to refuse it: the caller and the ledger are told."""
        assert place.degraded is not None
        mark = progress.account.degraded = place.degraded.mark
        progress.head.reply_lines += b"x-headrace-degraded: %b\r\n" % mark.encode()
        if progress.ticket is not None:
            progress.ticket.request = place.request

    # --- what headrace answers itself

    def _answer_ourselves(self, exchange: Exchange, progress: "Progress") -> None:
        head, rules = progress.head, self._current()
        route = head.route
        lines = rules.cors.add_lines(head.reply_lines, exchange)
        if route is None:
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, "no such path")
        if exchange.method == b"OPTIONS":
            allow = b", ".join((*route.methods, b"OPTIONS"))
            progress.answer(204, head.reply_lines + rules.cors.preflight_lines(exchange, allow), b"")
        elif progress.relay is not None:
            progress.relay.deliver(lines, progress)
        elif route.path == "/health":
            progress.answer(200, lines + JSON_TYPE, b'{"status":"ok"}')
        elif route.path == "/ready":
            is_ready = rules.router.is_ready() and not self.refuses_new
            status, body = (200, b'{"status":"ready"}') if is_ready else (503, b'{"status":"not ready"}')
            progress.answer(status, lines + JSON_TYPE, body)
        else:
            progress.answer(200, lines + JSON_TYPE, self._models_body(route, exchange, progress.account))

    def _models_body(self, route: Route, exchange: Exchange, account: Account) -> bytes:
        caller = account.caller
        rules = self._current()
        visible = [name for name in rules.models if caller is None or caller.may_use(name)]
        if rules.chooser is not None:
            visible += rules.chooser.visible(caller)
        if route is not ONE_MODEL:
            return list_models(visible)
        name = exchange.path.removeprefix(b"/v1/models/").decode("utf-8", "replace")
        if name not in visible:
            raise model_not_found(name)
        return show_model(name)

    # --- inside

    def _current(self) -> Rules:
        if self.rules is None:
            raise RequestError(ErrorCode.NO_READY_ENDPOINT, "the gateway has no plan yet; retry in a moment")
        return self.rules

    def _progress(self, exchange: Exchange) -> "Progress":
        if exchange.state is None:  # refused before its head was complete
            self.open(exchange)
        state = exchange.state
        assert isinstance(state, Progress)
        return state

    def refuse(self, exchange: Exchange, head: RequestHead, error: RequestError) -> None:
        """Answer with an error as a whole response."""
        cors = self.rules.cors.lines_for(exchange) if self.rules else b""
        refuse(exchange, head, error, cors)

    def remember_answer(self, account: Account, answer_id: str) -> None:
        """Keep which endpoint holds a stored answer, for `previous_response_id`."""
        if account.caller is not None and account.endpoint is not None:
            self._pins.remember(account.caller.tenant, answer_id, account.endpoint)


@dataclass(slots=True, eq=False)
class Progress:
    """One request between its steps: what must be undone and settled at its end (6 accounting). Implements `Ending`."""

    pipeline: Pipeline
    exchange: Exchange
    head: RequestHead
    account: Account
    ticket: Ticket | None = None
    request: InferenceRequest | None = None
    pauses: int = 0
    """How often it has waited for an exchange of shares."""
    place: GatewayTicket | None = None
    delivery: Delivery | None = None
    relay: Relay | None = None
    """Of a request for files or batches."""

    def delivered(self, status: int, answer_id: str | None) -> None:
        if answer_id is not None and self.account.dialect == RESPONSES:
            self.pipeline.remember_answer(self.account, answer_id)
        self._settle(None, status)

    def passed_on(self, status: int, code: ErrorCode | None) -> None:
        """The batch process has answered."""
        self._settle(code, status)

    def failed(self, error: RequestError) -> None:
        self.refuse(error)

    def resume(self) -> None:
        """The exchange that it waited for is over."""
        caller, request = self.account.caller, self.request
        if self.exchange.state is self and caller is not None and request is not None:  # else its caller has left
            self.pipeline.resume(self, request, caller)

    def crashed(self, bug: Exception) -> None:
        """End with an error id for the caller."""
        if self.delivery is not None:
            self.delivery.crashed(bug)
        else:
            self.refuse(self.report(bug))

    def report(self, bug: Exception) -> RequestError:
        uid = self.head.uid
        log.error("internal bug", error_id=uid, error=repr(bug), exc_info=bug)
        return RequestError(ErrorCode.INTERNAL_BUG, f"headrace failed; report it with error id {uid}")

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """An answer of our own. Probes of load balancers (no key, no account) leave no trace in ledger and log."""
        self.exchange.respond(status, lines, body)
        if self.account.caller is not None:
            self._settle(None, status)

    def refuse(self, error: RequestError) -> None:
        """End with an error: answered here unless the stream's head is out, which forwarding has ended in-band."""
        status = 200 if self.exchange.is_streaming else error.spec.http_status
        if not self.exchange.is_streaming:
            self.pipeline.refuse(self.exchange, self.head, error)
        self._settle(error.code, status)

    def _settle(self, code: ErrorCode | None, status: int) -> None:
        """Give back what admission counted, stop watching, and close the account; called once per request."""
        pipeline, delivery = self.pipeline, self.delivery
        place, self.place = self.place, None
        if place is not None:
            if place.is_waiting:
                self.account.left_queue_mono_s = monotonic()
            pipeline.queue.leave(place, self.account.usage, self.account.output_events)
        if self.ticket is not None:
            self._settle_quota(self.ticket, code)
            self.ticket = None
        if delivery is not None:
            pipeline.dispatcher.forget(delivery)
        self.account.settle(code, status, monotonic())
        self.delivery = self.request = None
        # An error holds the frames it went through, and those hold the exchange: cut, or only the collector frees both.
        self.exchange.error = self.exchange.state = None

    def _settle_quota(self, ticket: Ticket, code: ErrorCode | None) -> None:
        account, pipeline, usage = self.account, self.pipeline, self.account.usage
        bill = pipeline.quota.settle(
            ticket,
            usage=usage,
            output_events=account.output_events,
            pool=account.pool,
            code=code,
            is_dispatched=account.dispatched_mono_s is not None,
            now_mono_s=monotonic(),
        )
        account.gpu_s, account.cost_nanos, account.price_version = bill.gpu_s, bill.cost_nanos, bill.price_version
        if ticket.request.requested_model != account.model:
            self._note_model(ticket.request, code)
        if usage.input_tokens is not None:
            request = ticket.request
            pipeline.estimates.learn(request.requested_model, request.prompt_bytes, usage.input_tokens)

    def _note_model(self, request: InferenceRequest, code: ErrorCode | None) -> None:
        """Another model answered than was asked for by name: the ledger is told and, where the name stands for several,
        what its answer took."""
        account, rules = self.account, self.pipeline.rules
        if account.dispatched_mono_s is None:
            return
        model = request.requested_model
        if code is not None and rules is not None and account.pool is not None:
            model = rules.router.model_of(account.pool) or model  # it may have been for another next, and never sent
        account.chosen_model = model
        output_tokens = account.usage.output_tokens
        is_plain = code is None and account.attempts == 1
        if (
            request.choice is not None
            and is_plain
            and output_tokens is not None
            and rules is not None
            and rules.chooser
        ):
            rules.chooser.learn(request, monotonic() - account.dispatched_mono_s, output_tokens)
