"""One endpoint as routing knows it: what was sent there and has not come back, and what was learned of its speed.

Pure numbers, in tokens and seconds; `now_mono_s` comes in as an argument, so that the same code runs in virtual time.
"""

from bisect import bisect_left
from collections import deque
from math import exp, log
from zlib import crc32

from headrace.gateway.routing.core.ask import Claim
from headrace.gateway.routing.core.chain import PromptChain
from headrace.gateway.routing.core.learning import LineEstimate
from headrace.gateway.routing.core.prefix_index import PrefixIndex, Shelf
from headrace.telemetry.routing_metrics import PREDICTION_BOUNDS

FIRST_GUESS_FIXED_S = 0.03
FIRST_GUESS_S_PER_TOKEN = 1e-4
FIRST_GUESS_TPOT_S = 0.02
FIRST_GUESS_TPOT_PER_SEQUENCE_S = 2e-4
"""What an endpoint is taken for until it has answered a few times: 10,000 prompt tokens a second, 50 tokens a second
in a stream. Chosen; alike for all, so that they favour nobody."""
ATTENTION_TOKENS = 32_768.0
"""Context at which attention costs a prompt token as much as all the rest of the model does. Source: 2 x parameters /
(4 x heads x head size x layers): 31,000 for Llama 3.1 8B, 35,000 for Qwen2.5 7B, 53,000 for Llama 3.1 70B; windowed and
latent attention cost less. Without it the prefill of 100,000 tokens would be guessed at a third of what it takes."""
OWN_POINTS = 20
"""First tokens that an endpoint must have had before its own speed counts; until then it is as fast as its pool. With
8, of a burst at the start, half of them from one step and all before the pool's speed was known, chance counted as
speed: 5.2 instead of 4.0 s of TTFT p99 (first 1,000 requests of azure_code.csv at 95 % load, in virtual time)."""
OWN_STEP = 0.05
"""How fast one first token moves what is known of its endpoint. Chosen: some twenty count."""
OWN_DEAD_BAND = 1.25
"""An endpoint is as fast as its pool unless it differs by more than this: less is chance, and believing it would send
everybody to whoever was lucky last."""
LOG_DEAD_BAND = log(OWN_DEAD_BAND)
LOG_BOUND = log(20.0)
"""One first token counts for at most twenty times too late, or too soon."""
STALE_S = 60.0
"""An endpoint that had no first token for so long is taken to be as fast as its pool again: what made it slow may be
over, and nobody would find out. Chosen."""
TRUST_STEP = 0.1
"""How fast a measured share of cached tokens moves what is expected. Chosen: ten answers."""
LEAST_TRUST = 0.02
NEVER_S = float("inf")


def prefill_work(uncached_tokens: float, input_tokens: float) -> float:
    """What computing the last `uncached_tokens` of a prompt costs, in tokens of a short prompt."""
    return uncached_tokens * (1.0 + (input_tokens - 0.5 * uncached_tokens) / ATTENTION_TOKENS)


class PoolSpeed:
    """What the answers of all endpoints of a pool have taught of how fast prompts and answers are there."""

    __slots__ = ("miss_counts", "miss_sum", "tpot", "ttft")

    def __init__(self) -> None:
        self.miss_counts = [0] * (len(PREDICTION_BOUNDS) + 1)
        self.miss_sum = 0.0
        """First tokens by how late they came, as a share of what was predicted; and the sum of those shares."""
        self.ttft = LineEstimate(fixed=FIRST_GUESS_FIXED_S, slope=FIRST_GUESS_S_PER_TOKEN, scale=1000.0)
        """Seconds to the first token by work to do, what is queued ahead included."""
        self.tpot = LineEstimate(fixed=FIRST_GUESS_TPOT_S, slope=FIRST_GUESS_TPOT_PER_SEQUENCE_S, scale=10.0)
        """Seconds a token by sequences that run at once."""


class Candidate:
    """Changes with every claim, first token and end. Not for use by several threads at once."""

    __slots__ = (
        "_log_factor",
        "bit",
        "claims",
        "endpoint_id",
        "factor",
        "foreign",
        "head_mono_s",
        "hit_tokens",
        "in_flight",
        "input_tokens",
        "last_turn",
        "learned_mono_s",
        "next_unseen_mono_s",
        "outages",
        "points",
        "pool",
        "prefill_tokens",
        "prefix_claims",
        "running",
        "seed",
        "shelf",
        "trust",
        "unseen",
    )

    def __init__(self, endpoint_id: str, shelf: Shelf, pool: PoolSpeed) -> None:
        self.endpoint_id = endpoint_id
        self.shelf = shelf
        self.bit = shelf.bit
        self.seed = crc32(endpoint_id.encode()) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        """The same in every worker: mixed with a block's name it ranks the endpoints for that block."""
        self.pool = pool
        self.factor = 1.0
        """How many times as long as the pool's mean it takes to a first token."""
        self.learned_mono_s = 0.0
        self.points = 0
        self._log_factor = 0.0
        self.trust = 1.0
        """What is found cached, as a share of what the index says; learned from answers that tell."""
        self.in_flight = 0
        self.foreign = 0
        """Requests there that others sent, as the engine's own numbers tell while they are fresh."""
        self.prefill_tokens = 0.0
        """Of claims whose first token has not come: the work of their prompts, in tokens of short ones."""
        self.running = 0
        """Claims whose first token has come."""
        self.head_mono_s = 0.0
        """Since when the endpoint works on the oldest of those prompts."""
        self.unseen: deque[tuple[float, Claim]] = deque()
        """Claims whose first token will not be seen, as the answer comes whole: when it is taken to come."""
        self.next_unseen_mono_s = NEVER_S
        """When that is for the first of them."""
        self.claims = 0
        self.prefix_claims = 0
        """Those of them that came where their prompt's beginning was."""
        self.last_turn = 0
        """When it was last picked, in turns of the router: equals take turns."""
        self.input_tokens = 0
        self.hit_tokens = 0
        """Of all answers that told: their input tokens, and those that were cached."""
        self.outages = 0
        """The endpoint's count of them when its shelf was begun."""

    def adopt_shelf(self, shelf: Shelf) -> None:
        """Its KV memory is another now."""
        self.shelf, self.bit = shelf, shelf.bit

    def ahead_tokens(self, now_mono_s: float) -> float:
        """Work still to be done before a new one gets its turn: what is queued, less what was surely
        done since the last first token."""
        return self.ahead_s(now_mono_s) / (self.pool.ttft.slope * self.factor)

    def ahead_s(self, now_mono_s: float) -> float:
        """How long that will take."""
        if self.next_unseen_mono_s <= now_mono_s:
            self.pass_unseen(now_mono_s)
        queued_s = self.prefill_tokens * self.pool.ttft.slope * self.factor
        done_s, half_s = now_mono_s - self.head_mono_s, 0.5 * queued_s
        return queued_s - done_s if done_s < half_s else half_s

    def claim(
        self,
        index: PrefixIndex,
        chain: PromptChain | None,
        *,
        input_tokens: float,
        held_tokens: float,
        now_mono_s: float,
        shows_first_token: bool = True,
    ) -> Claim:
        """An attempt is sent here, of whose prompt `held_tokens` are believed to be cached."""
        claim = Claim(
            candidate=self,
            input_tokens=input_tokens,
            expected_cached_tokens=held_tokens,
            claimed_mono_s=now_mono_s,
            shelf=self.shelf,
        )
        self.take(claim, index, chain, shows_first_token=shows_first_token)
        return claim

    def take(self, claim: Claim, index: PrefixIndex, chain: PromptChain | None, *, shows_first_token: bool) -> None:
        """Count a claim that has just been made."""
        input_tokens, now_mono_s = claim.input_tokens, claim.claimed_mono_s
        uncached = input_tokens - claim.expected_cached_tokens * self.trust
        if uncached < 1.0:
            uncached = 1.0
        work = uncached * (1.0 + (input_tokens - 0.5 * uncached) / ATTENTION_TOKENS)  # `prefill_work`
        queued = self.prefill_tokens
        if queued > 0.0:
            claim.ahead_tokens = self.ahead_s(now_mono_s) / (self.pool.ttft.slope * self.factor)
            queued = self.prefill_tokens
        if queued <= 0.0:
            self.head_mono_s = now_mono_s
        claim.work_tokens = work
        claim.running_before = self.running
        self.prefill_tokens = queued + work
        self.in_flight += 1
        self.claims += 1
        if claim.expected_cached_tokens:
            self.prefix_claims += 1
        if chain is not None and chain.names:
            claim.added = index.place(self.shelf, chain)
        if not shows_first_token:
            line = self.pool.ttft
            at_mono_s = now_mono_s + self.factor * (line.fixed + line.slope * (claim.ahead_tokens + work))
            if not self.unseen:
                self.next_unseen_mono_s = at_mono_s
            self.unseen.append((at_mono_s, claim))

    def arrive(self, claim: Claim, now_mono_s: float) -> None:
        """Its prompt is computed elsewhere and comes here: it generates, and teaches nothing of prompts."""
        if not claim.is_generating and not claim.is_over:
            claim.is_generating = True
            self._leave_prefill(claim, now_mono_s)
            self.running += 1

    def first_token(self, claim: Claim, now_mono_s: float) -> None:
        """Its prompt is computed: now it generates."""
        if claim.is_generating or claim.is_over:
            return
        claim.is_generating = True
        claim.first_token_mono_s = now_mono_s
        self._leave_prefill(claim, now_mono_s)
        self.running += 1
        work, ttft_s = claim.ahead_tokens + claim.work_tokens, now_mono_s - claim.claimed_mono_s
        pool = self.pool
        ratio = ttft_s / max(1e-4, pool.ttft.predict(work))
        missed = ratio / self.factor
        pool.miss_counts[bisect_left(PREDICTION_BOUNDS, missed)] += 1
        pool.miss_sum += missed
        self._learn_factor(ratio, now_mono_s)
        self.pool.ttft.observe(work, ttft_s)

    def end(
        self,
        claim: Claim,
        index: PrefixIndex,
        now_mono_s: float,
        *,
        is_answered: bool,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        size_per_token: float = 1.0,
    ) -> None:
        """It is over, whole or not. Numbers that the engine did not tell are None."""
        if claim.is_over:
            return
        claim.is_over = True
        self.in_flight -= 1
        first_mono_s = claim.first_token_mono_s
        if not claim.is_generating:
            self._leave_prefill(claim, now_mono_s)
            if self.unseen and self.unseen[0][1] is claim:
                self.pass_unseen(now_mono_s)
        else:
            self.running -= 1
            if first_mono_s is not None and is_answered and output_tokens is not None and output_tokens > 1:
                beside = (claim.running_before + self.running) / 2 + 1
                self.pool.tpot.observe(beside, (now_mono_s - first_mono_s) / (output_tokens - 1))
        if not claim.is_generating and not is_answered:
            if claim.added:
                index.take_back(claim.shelf, claim.added)
            return
        if output_tokens:
            claim.shelf.unnamed += int(output_tokens * size_per_token)
        if input_tokens is not None and cached_tokens is not None:
            self._learn_hits(claim, input_tokens, cached_tokens)

    def _learn_factor(self, ratio: float, now_mono_s: float) -> None:
        """In logarithms, so that twice as slow and twice as fast weigh the same."""
        self.learned_mono_s = now_mono_s
        self.points += 1
        bounded = max(-LOG_BOUND, min(LOG_BOUND, log(ratio) if ratio > 0.0 else -LOG_BOUND))
        self._log_factor += max(OWN_STEP, 1.0 / self.points) * (bounded - self._log_factor)
        is_own = self.points >= OWN_POINTS and abs(self._log_factor) > LOG_DEAD_BAND
        self.factor = exp(self._log_factor) if is_own else 1.0

    def forget_stale(self, now_mono_s: float) -> None:
        """Called now and then: believe the pool where nothing was learned here lately."""
        if self.points and now_mono_s - self.learned_mono_s > STALE_S:
            self.factor, self.points, self._log_factor = 1.0, 0, 0.0

    def pass_unseen(self, now_mono_s: float) -> None:
        """Their prompts are taken to be computed. Who is over has left already, and only makes room for the next."""
        unseen = self.unseen
        while unseen and (unseen[0][0] <= now_mono_s or unseen[0][1].is_over):
            at_mono_s, claim = unseen.popleft()
            if not claim.is_over and not claim.is_generating:
                claim.is_generating = True
                self._leave_prefill(claim, at_mono_s)
                self.running += 1
        self.next_unseen_mono_s = unseen[0][0] if unseen else NEVER_S

    def _leave_prefill(self, claim: Claim, now_mono_s: float) -> None:
        left = self.prefill_tokens - claim.work_tokens
        self.prefill_tokens = left if left > 0.5 else 0.0
        self.head_mono_s = now_mono_s

    def _learn_hits(self, claim: Claim, input_tokens: int, cached_tokens: int) -> None:
        self.input_tokens += input_tokens
        self.hit_tokens += cached_tokens
        expected = claim.expected_cached_tokens
        if expected > 0.0 and claim.input_tokens > 0.0:
            measured = min(1.0, cached_tokens / expected * claim.input_tokens / max(1, input_tokens))
            self.trust = max(LEAST_TRUST, self.trust + TRUST_STEP * (measured - self.trust))

    def __repr__(self) -> str:
        return f"Candidate({self.endpoint_id}, in_flight={self.in_flight}, prefill={self.prefill_tokens:.0f} tokens)"
