"""The parts of a gateway that hand prompts over, put together as its worker does it: real ones, in the test's own loop.

Nothing probes: a test says what probes would have found. Counterpart: `running_gateway.py`, the whole process.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from tests.harness.running_gateway import addresses_of, declare, remote_pool

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.accounting.counters import Counters, ModelCounters
from headrace.gateway.accounting.handover_exposition import HandoverBook, HandoverCounts
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.seat import Seats
from headrace.gateway.endpoints.serving import serving_table
from headrace.gateway.forwarding.core.failover import RetryLimits
from headrace.gateway.forwarding.core.retry_budget import RetryBudget
from headrace.gateway.forwarding.delivery import Delivery
from headrace.gateway.forwarding.hedge import HedgeBook
from headrace.gateway.forwarding.ports import ForwardingSettings, ResumeSettings
from headrace.gateway.forwarding.warm_up import WarmUpAccount
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.wire import DateLine
from headrace.gateway.routing.disaggregation.handovers import Halves, Handovers, sort_halves
from headrace.gateway.routing.placer import Placer
from headrace.gateway.routing.router import Router

LONG_TOKENS = 20_000
"""Two seconds of work by what is guessed of an engine at first, and far above what is thought worth splitting."""
CHAT = b"/v1/chat/completions"


def half(
    engine: str, role: str | None, *urls: str, pool: dict[str, Any] | None = None, **handover: Any
) -> dict[str, Any]:
    """A pool of the model `m`; `role` None: an ordinary one. `pool`: other keys of its declaration."""
    part = {"disaggregation": {"role": role}, "handover": handover} if role else {}
    return remote_pool(*urls, engine=engine, **part, **(pool or {}))


def asked(text: str = "hello", *, tokens: int = LONG_TOKENS, is_stream: bool = True, **fields: Any) -> InferenceRequest:
    """A chat completion of one message, whose prompt is taken to have so many tokens."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "stream": is_stream, **fields}
    encoded = msgspec.json.encode(body)
    return InferenceRequest(
        dialect=ApiDialect.CHAT_COMPLETIONS, path=CHAT, requested_model="m", body=encoded,
        fields=msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]), is_stream=is_stream, wants_usage=False,
        output_limit_tokens=fields.get("max_tokens"), estimated_input_tokens=tokens,
    )  # fmt: skip


@dataclass
class CallersEnd:
    """Implements the wire's `Connection` and forwarding's `Ending`: what the caller has, and how often it ended."""

    date: DateLine = field(default_factory=DateLine)
    is_draining: bool = False
    peer: str = "127.0.0.1"
    repeated: tuple[bytes, ...] = ()
    sent: bytes = b""
    ends: list[RequestError | None] = field(default_factory=list)
    """None: delivered."""
    bugs: list[Exception] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def surroundings(self) -> "CallersEnd":
        return self

    def write(self, data: bytes) -> None:
        self.sent += data

    def finish(self, last: bytes, *, closes: bool) -> None:
        self.sent += last

    def hold_reading(self, is_held: bool) -> None:
        raise AssertionError("nothing is uploaded here")

    def abort(self) -> None:
        raise AssertionError("no answer of ours is cut")

    def delivered(self, status: int, answer_id: str | None) -> None:
        self.ends.append(None)
        self.over.set()

    def failed(self, error: RequestError) -> None:
        self.ends.append(error)
        self.over.set()

    def report(self, bug: Exception) -> RequestError:
        self.bugs.append(bug)
        return RequestError(ErrorCode.INTERNAL_BUG, str(bug))


@dataclass
class Sent:
    """One request on its way."""

    delivery: Delivery
    caller: CallersEnd
    account: WarmUpAccount

    async def end(self) -> "Sent":
        """Wait until it has ended."""
        async with asyncio.timeout(60):
            await self.caller.over.wait()
        assert not self.caller.bugs
        return self

    @property
    def error(self) -> RequestError | None:
        """The end, which came once."""
        (found,) = self.caller.ends
        return found


class HandoverParts:
    """Endpoints, routing and forwarding of one plan."""

    def __init__(self, pools: dict[str, dict[str, Any]], folder: Path = Path("/nowhere"), **sections: Any) -> None:
        self.loop = asyncio.get_running_loop()
        declaration = declare(pools, **sections)
        self.plan = compile_gateway_plan(declaration, addresses_of(declaration), revision=1)
        seats = Seats(0, folder)
        seats.adopt(self.plan)
        self.directory = EndpointDirectory(self.loop, None, seats)
        self.directory.adopt(self.directory.prepare(self.plan))
        self.placer = Placer(lambda: b"a secret of the tests, not of an instance")
        self.placer.adopt(self.plan.routing)
        self.book = HandoverBook()
        self.handovers = Handovers(self.placer, self.book.of)
        self.router = Router(serving_table(self.plan), self.directory, self.placer, self.plan.routing, self.handovers)
        self.counters, self.meters = Counters(), ModelCounters()
        now = monotonic()
        for endpoint in self.directory:
            endpoint.probe_said_ready(now)

    def __getitem__(self, pool: str) -> Endpoint:
        """The first endpoint of a pool."""
        return self.directory.of_pool(pool)[0]

    @property
    def halves(self) -> Halves:
        _, found = sort_halves(self.directory)
        assert found is not None
        return found

    @property
    def counts(self) -> HandoverCounts:
        return self.book.of("m")

    def learn_speed(self, *pools: str, s_per_token: float = 1e-4) -> None:
        """What some first tokens would have taught; `s_per_token` as at first."""
        self.placer.explain(asked(), tuple(self.directory))  # they are met
        for pool in pools:
            candidate = self.placer.candidate_of(self[pool])
            assert candidate is not None
            line = candidate.pool.ttft
            line.slope, line.points = s_per_token, 10

    def connect(self, *, transfer_s: float = 0.001) -> None:
        """What a first hand-over of each pair would have taught: that they are connected; and some more."""
        link = self.handovers.link("m")
        for giver in self.halves.prefills:
            for taker in self.halves.decodes:
                for _ in range(10):
                    link.observe(giver.endpoint_id, taker.endpoint_id, size_bytes=0.0, transfer_s=transfer_s)

    @property
    def settings(self) -> ForwardingSettings:
        """Three attempts, without a pause to speak of between them."""
        budget = RetryBudget(ratio=1.0, minimum=100, now_mono_s=monotonic())
        return ForwardingSettings(
            loop=self.loop, candidates=self.router, budget=budget, retry=RetryLimits(max_attempts=3, backoff_s=0.001),
            resume=ResumeSettings(budget=budget, enabled=False), hedges=HedgeBook(), meters=self.counters,
            event_bytes=1 << 20, response_bytes=1 << 20, heartbeat_s=None,
        )  # fmt: skip

    def send(self, request: InferenceRequest) -> Sent:
        """Forward a request, as the pipeline does."""
        caller, account, now = CallersEnd(), WarmUpAccount(request_id="r"), monotonic()
        exchange = Exchange(caller, b"POST", CHAT, {})
        delivery = Delivery(
            request, exchange, account, caller, self.settings, self.meters, b"", b"x-request-id: r", None, now
        )
        delivery.start()
        return Sent(delivery, caller, account)

    def is_idle(self) -> bool:
        """Nothing is claimed anywhere."""
        candidates = [self.placer.candidate_of(one) for one in self.directory]
        return all(one.in_flight == 0 and one.load.prefilling == 0 for one in self.directory) and all(
            one is None or (one.in_flight == 0 and one.prefill_tokens == 0) for one in candidates
        )

    def close(self) -> None:
        for endpoint in self.directory:
            endpoint.connections.close()
