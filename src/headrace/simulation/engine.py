"""One simulated engine replica: requests in, steps out. The table of contents of the engine model.

A step plans like a real scheduler does: generate for what runs, fill the rest of the token budget with prompts, start
what waits while sequences and KV blocks allow, preempt the newest when blocks run out.
"""

from headrace.simulation.model import EngineModel
from headrace.simulation.outcome import LoadSnapshot, Refusal, Step
from headrace.simulation.request import SimulatedRequest


class SimulatedEngine:
    """Pure: every time is an argument and never goes backwards. Not for use by several threads at once."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model

    def submit(self, request: SimulatedRequest, now_s: float) -> Refusal | None:
        """Queue a request, or say why not. It starts with the next step."""
        raise NotImplementedError

    def cancel(self, request_id: str) -> bool:
        """Forget a waiting or running request and free its blocks; False if it is unknown or has ended."""
        raise NotImplementedError

    def step(self, now_s: float) -> Step | None:
        """Do one step that starts now; None when there is nothing to do."""
        raise NotImplementedError

    def load(self) -> LoadSnapshot:
        raise NotImplementedError

    def clear_prefix_cache(self) -> None:
        """Forget all cached KV that no request uses."""
        raise NotImplementedError

    def held_bytes(self, request_id: str) -> int | None:
        """Bytes of KV held for a finished prefill-only request; None if none is held (expired or fetched)."""
        raise NotImplementedError

    def release_held(self, request_id: str) -> bool:
        """A decode engine has fetched the KV, or never will."""
        raise NotImplementedError

    def lose_transfer(self, request_id: str) -> bool:
        """The KV that a request waits for does not come: it recomputes or ends with an error, as it asked."""
        raise NotImplementedError
