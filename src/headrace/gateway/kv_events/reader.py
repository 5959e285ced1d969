"""Keeps one task per endpoint (and data-parallel rank) whose pool declares `telemetry.kv_events`, and tells routing
what the caches have lost. Counterparts: `endpoints/load_reader.py`, which reads the same engines' metrics;
`routing/placer.py`, which believes the index less.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from headrace.domain.endpoint import EngineKind
from headrace.domain.routing_figures import CacheFigures
from headrace.extras import Extra, install_hint, missing_text
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.kv_events.core.book import CacheBook
from headrace.gateway.kv_events.core.changes import Tier
from headrace.gateway.kv_events.poller import Poller
from headrace.gateway.tasks import keep

if TYPE_CHECKING:
    import zmq.asyncio

log = structlog.get_logger("headrace.gateway")
RECONCILE_S = 0.2
"""How soon a new endpoint is followed, and a removed one loses its tasks. As the prober."""
SHRINK_S = 0.5
"""Between two looks at how much an endpoint still holds: evictions come many a second. Chosen."""
PUBLISHERS = frozenset({EngineKind.VLLM.value, EngineKind.SGLANG.value})


@dataclass(slots=True, eq=False)
class Followed:
    """One endpoint whose events are read."""

    book: CacheBook
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    emptyings: int = 0
    restarts: int = 0
    losses: int | None = None
    looked_mono_s: float = 0.0


class KvEventReader:
    """`on_emptied` hears that an endpoint's cache is empty; `on_held` how many tokens are left after evictions."""

    def __init__(
        self,
        directory: EndpointDirectory,
        *,
        on_emptied: Callable[[Endpoint], None],
        on_held: Callable[[Endpoint, int], None],
    ) -> None:
        self._directory = directory
        self._on_emptied = on_emptied
        self._on_held = on_held
        self._followed: dict[Endpoint, Followed] = {}
        self._context: zmq.asyncio.Context | None = None
        self._is_missing = False
        self.polls = True
        """Whether TensorRT-LLM is asked: it hands out each event once, so of several workers none may."""

    def figures(self) -> Iterator[CacheFigures]:
        """What is known of the cache of every endpoint that is followed."""
        for endpoint, followed in self._followed.items():
            yield _figures(endpoint.endpoint_id, followed.book)

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        try:
            while True:
                self._reconcile()
                await asyncio.sleep(RECONCILE_S)
        finally:
            for endpoint in list(self._followed):
                self._leave(endpoint)
            if self._context is not None:
                self._context.destroy(linger=0)
                self._context = None

    def _reconcile(self) -> None:
        wanted = {endpoint for endpoint in self._directory if self._is_wanted(endpoint)}
        for endpoint in wanted - self._followed.keys():
            self._follow(endpoint)
        for endpoint in self._followed.keys() - wanted:
            self._leave(endpoint)

    def _is_wanted(self, endpoint: Endpoint) -> bool:
        plan = endpoint.plan
        if not plan.kv_event_ranks:
            return False
        if plan.engine in PUBLISHERS:
            return not self._is_missing
        return plan.engine == EngineKind.TENSORRT_LLM.value and self.polls

    def _follow(self, endpoint: Endpoint) -> None:
        plan = endpoint.plan
        followed = Followed(CacheBook(plan.kv_event_ranks))

        def changed() -> None:
            self._note(endpoint, followed)

        if plan.engine not in PUBLISHERS:
            runs = [Poller(endpoint, followed.book, changed).run]
        else:
            try:
                from headrace.gateway.kv_events import subscriber
            except ImportError:
                self._is_missing = True
                missing = missing_text(f"pools.{plan.name}.telemetry.kv_events", Extra.KV_EVENTS)
                log.warning(f"{missing}. {install_hint(Extra.KV_EVENTS)}", pool=plan.name)
                return
            if self._context is None:
                self._context = subscriber.context()
            host, port = _place_of(endpoint)
            runs = [
                subscriber.Subscriber(
                    self._context, host=host, port=port, rank=rank, book=followed.book, on_change=changed
                ).run
                for rank in range(plan.kv_event_ranks)
            ]
        followed.tasks = [keep(run, f"kv events {endpoint.endpoint_id}") for run in runs]
        self._followed[endpoint] = followed

    def _leave(self, endpoint: Endpoint) -> None:
        for task in self._followed.pop(endpoint).tasks:
            task.cancel()
        endpoint.cache_losses = None

    def _note(self, endpoint: Endpoint, followed: Followed) -> None:
        """Events were added up: tell what was lost."""
        book = followed.book
        endpoint.cache_losses = losses = book.losses
        if book.emptyings != followed.emptyings:
            followed.emptyings = book.emptyings
            log.info("an engine's KV cache was emptied", endpoint=endpoint.endpoint_id, clears=book.clears,
                     restarts=book.restarts)  # fmt: skip
            if book.restarts != followed.restarts:
                followed.restarts = book.restarts
                endpoint.outages += 1  # it may have come back between two probes
            self._on_emptied(endpoint)
        now_mono_s = monotonic()
        if losses is None or losses == followed.losses or now_mono_s - followed.looked_mono_s < SHRINK_S:
            return
        followed.losses, followed.looked_mono_s = losses, now_mono_s
        held_tokens = book.held_tokens()
        if held_tokens is not None:
            self._on_held(endpoint, held_tokens)


def _figures(endpoint: str, book: CacheBook) -> CacheFigures:
    held = {tier.value: book.held_tokens(tier) for tier in Tier}
    return CacheFigures(
        endpoint=endpoint,
        stored_blocks=book.stored_blocks,
        removed_blocks=book.removed_blocks,
        clears=book.clears,
        restarts=book.restarts,
        held_tokens={tier: tokens for tier, tokens in held.items() if tokens is not None},
        messages=book.messages,
        missed=book.missed,
        replayed=book.replayed,
        unreadable=book.malformed + book.unknown,
    )


def _place_of(endpoint: Endpoint) -> tuple[str, int]:
    url = urlsplit(endpoint.address.url)
    return endpoint.address.ip or url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
