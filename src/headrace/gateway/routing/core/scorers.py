"""The scorers: each turns one reason to prefer an endpoint into seconds. `plugins.py` names them by kind."""

from dataclasses import dataclass

from xxhash import xxh3_64_intdigest

from headrace.gateway.routing.core.decision import View
from headrace.gateway.routing.core.usual_costs import INTERFERENCE_RATIO, NEIGHBOUR_RATIO


@dataclass(frozen=True, slots=True)
class PredictedTtftScorer:
    """When the first token would come: (prompt tokens queued ahead + those to compute) at the learned rate, and the
    learned fixed delay."""

    kind = "predicted-ttft"

    def costs(self, view: View) -> list[float]:
        return [
            candidate.factor * candidate.pool.ttft.fixed + pace_s * (ahead + work)
            for candidate, pace_s, ahead, work in zip(
                view.candidates, view.paces_s, view.ahead_tokens, view.work_tokens, strict=True
            )
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrefillWorkScorer:
    """What computing the prompt takes from the fleet, whoever waits for it."""

    kind = "prefill-work"

    def costs(self, view: View) -> list[float]:
        return [pace_s * work for pace_s, work in zip(view.paces_s, view.work_tokens, strict=True)]


@dataclass(frozen=True, slots=True)
class DecodeSlowdownScorer:
    """What generating there costs: each sequence beside it slows it, it slows each of them, and so does its prompt."""

    kind = "decode-slowdown"

    def costs(self, view: View) -> list[float]:
        twice_output = 2.0 * NEIGHBOUR_RATIO * view.ask.output_tokens
        return [
            candidate.pool.tpot.slope * (candidate.in_flight + candidate.foreign) * twice_output
            + INTERFERENCE_RATIO * pace_s * work * candidate.running
            for candidate, pace_s, work in zip(view.candidates, view.paces_s, view.work_tokens, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class LeastLoadedScorer:
    """Requests in flight; a second for each."""

    kind = "least-loaded"

    def costs(self, view: View) -> list[float]:
        return [float(candidate.in_flight + candidate.foreign) for candidate in view.candidates]


@dataclass(frozen=True, slots=True)
class RoundRobinScorer:
    """Each in turn."""

    kind = "round-robin"

    def costs(self, view: View) -> list[float]:
        count = len(view.candidates)
        return [float((place - view.ask.turn) % count) for place in range(count)]


@dataclass(frozen=True, slots=True)
class PrefixMatchScorer:
    """The share of the prompt that is not known to be cached there, as seconds; looks at no load."""

    kind = "prefix-match"

    def costs(self, view: View) -> list[float]:
        tokens = max(1.0, view.ask.input_tokens)
        return [uncached / tokens for uncached in view.uncached_tokens]


@dataclass(frozen=True, slots=True)
class SessionAffinityScorer:
    """A second for every endpoint that the session would not hash to: sessions stay, and few of them move when
    endpoints come or go."""

    kind = "session-affinity"

    def costs(self, view: View) -> list[float]:
        session = view.ask.session
        if session is None:
            return [0.0] * len(view.candidates)
        name = hash_of(session)
        ranks = [((candidate.seed ^ name) * 0xD6E8FEB86659FD93) & 0xFFFFFFFFFFFFFFFF for candidate in view.candidates]
        best = max(ranks)
        return [0.0 if rank == best else 1.0 for rank in ranks]


def hash_of(text: str) -> int:
    """A number that is the same in every worker."""
    return xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))
