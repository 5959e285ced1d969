"""KV between the legs of a disaggregated request, as one engine does it: it holds, gives, fetches, and loses by fault.

Step 3 of `service.py` for requests with a leg; `transfer.py` is the wire between two engines.
"""

import asyncio
import time
from collections.abc import Callable

from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.dialects.table import held_members
from headrace.engines.simulated.faults import FaultBook, FaultKind
from headrace.engines.simulated.generation import Choice, Generation
from headrace.engines.simulated.pump import Pump
from headrace.engines.simulated.stats import ServerStats
from headrace.engines.simulated.text import encode
from headrace.engines.simulated.transfer import Fetch, Held, Hold, KvShelf, fetch


class Handover:
    """The KV that one engine gives away and takes."""

    def __init__(self, config: EngineConfig, pump: Pump, faults: FaultBook, stats: ServerStats) -> None:
        self.shelf = KvShelf()
        self._config = config
        self._pump = pump
        self._faults = faults
        self._stats = stats

    def hold(
        self, generation: Generation, choice: Choice, hold: Hold, *, port: int, on_taken: Callable[[], None]
    ) -> list[Callable[[], None]]:
        """The prompt is computed: its KV waits to be fetched, and the answer says where.

        Returns what is to be done once the step is delivered: those who wait for it already get it then.
        """
        tokens = len(choice.prompt.tokens)
        first = list(encode(choice.answer.text(0, 1)))
        top, own = held_members(self._config, key=hold.key, port=port, prompt_tokens=tokens, first_tokens=first)
        generation.extra |= top
        choice.extra |= own
        self.shelf.prune(lambda request_id: self._pump.engine.held_bytes(request_id) is not None)
        self.shelf.put(hold.key, choice.request_id, tokens, on_taken if hold.waits_for_fetch else None)
        return [lambda taken=taken: taken(self.give(hold.key)) for taken in self.shelf.waiters(hold.key)]

    def give(self, key: str) -> Held | None:
        """Another engine fetches KV; None where it is gone."""
        found = self.shelf.take(key)
        if found is None:
            return None
        request_id, tokens = found
        engine = self._pump.engine
        size_bytes = engine.held_bytes(request_id)
        engine.release_held(request_id)
        self._pump.nudge()
        if size_bytes is None or self._faults.draw(FaultKind.KV_LOSS, time.monotonic()):
            return None
        return Held(tokens=tokens, size_bytes=size_bytes)

    async def fetch(self, leg: Fetch) -> Held | None:
        """Get the prompt's KV from the other engine; None where it is lost."""
        if fault := self._faults.draw(FaultKind.KV_SLOW, time.monotonic()):
            await asyncio.sleep(fault.stall_s)
        held = await fetch(leg)
        if held is None or self._faults.draw(FaultKind.KV_LOSS, time.monotonic()):
            self._stats.transfer_failures += 1
            return None
        transfer_s = self._config.engine.link.transfer_s(held.size_bytes)
        self._stats.transferred_tokens += held.tokens
        self._stats.transfer.observe(transfer_s / self._config.time_scale)
        self._stats.transfer_bytes.observe(held.size_bytes)
        return held
