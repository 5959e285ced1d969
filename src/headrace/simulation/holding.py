"""KV of finished prefill-only requests, kept until a decode engine has fetched it or its time is over."""

from headrace.simulation.kv import KvCache
from headrace.simulation.sequence import LiveSequence


class HeldKv:
    """By request: whose blocks are held, and until when."""

    def __init__(self, kv: KvCache) -> None:
        self._kv = kv
        self._held: dict[str, tuple[LiveSequence, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def has(self, request_id: str) -> bool:
        return request_id in self._held

    @property
    def blocks(self) -> int:
        """Blocks held; one that several prompts share counts for each."""
        if not self._kv.is_held_on_device:
            return 0
        return sum(self._kv.blocks_for(sequence.kv_tokens) for sequence, _expires_at_s in self._held.values())

    def hold(self, sequence: LiveSequence, *, expires_at_s: float) -> None:
        self._held[sequence.request_id] = (sequence, expires_at_s)
        if not self._kv.is_held_on_device:
            self._kv.release(sequence, sequence.kv_tokens, sequence.allocated_tokens)

    def find_tokens(self, request_id: str) -> int | None:
        held = self._held.get(request_id)
        return held[0].kv_tokens if held else None

    def release(self, request_id: str) -> bool:
        held = self._held.pop(request_id, None)
        if held is None:
            return False
        sequence, _expires_at_s = held
        if self._kv.is_held_on_device:
            self._kv.release(sequence, sequence.kv_tokens, sequence.allocated_tokens)
        return True

    def expire(self, now_s: float) -> None:
        while self._held:
            request_id, (_sequence, expires_at_s) = next(iter(self._held.items()))
            if expires_at_s > now_s:
                return  # held in the order of their ends, and all for as long
            self.release(request_id)

    def expiries(self) -> list[float]:
        return [expires_at_s for _sequence, expires_at_s in self._held.values()]
