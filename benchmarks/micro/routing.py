"""`python -m benchmarks micro routing`: CPU of one routing decision and of naming a prompt's blocks, without sockets.

A decision is what `Placer` adds to a request: the pick, the claim with what the index learns, first token and end.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from headrace.declaration.model import Model
from headrace.declaration.routing_plan import compile_model_routing
from headrace.domain.request import RequestClass
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.chain import PromptChain, chain_of, seed_of
from headrace.gateway.routing.core.decision import Ask, fleet_of, pick
from headrace.gateway.routing.core.prefix_index import PrefixIndex
from headrace.gateway.routing.plugins import make_policy

FLEETS = (2, 8, 64, 1000)
PROMPTS_BYTES = (450, 4_000, 16_000, 64_000, 400_000)
CONVERSATIONS = 200
BATCHES = 40
POLICY = make_policy(compile_model_routing(Model().routing))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks micro routing", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    chosen = parser.parse_args(arguments)
    found: dict[str, dict[str, float]] = {}
    print(f"{'':28} us lowest  median")
    for prompt_bytes in PROMPTS_BYTES:
        lowest, middle = _hashing(prompt_bytes)
        name = f"hash {prompt_bytes} bytes"
        per_kb = lowest / prompt_bytes * 1024
        found[name] = {"lowest_us": lowest, "median_us": middle, "lowest_us_per_kb": per_kb}
        print(f"{name:28} {lowest:9.2f} {middle:7.2f}  ({per_kb:.3f} us a KB)", flush=True)
    for count in FLEETS:
        for prompt_bytes in (450, 16_000, 400_000):
            fleet = Fleet(count, prompt_bytes)
            for kind, times in fleet.measure().items():
                name = f"{kind}, {count} endpoints, {prompt_bytes // 1000} kB"
                found[name] = {"lowest_us": min(times), "median_us": median(times)}
                print(f"{name:28} {min(times):9.2f} {median(times):7.2f}", flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def _hashing(prompt_bytes: int) -> tuple[float, float]:
    prompt, seed = b"x" * prompt_bytes, seed_of(b"secret", ("model",))
    times = _timed(lambda: chain_of((prompt,), seed), rounds=200)
    return min(times), median(times)


def _timed(action: Callable[[], object], *, rounds: int) -> list[float]:
    """Microseconds of CPU of one call, by batch."""
    times: list[float] = []
    for _ in range(BATCHES):
        started_s = time.thread_time()
        for _ in range(rounds):
            action()
        times.append((time.thread_time() - started_s) / rounds * 1e6)
    return times


class Fleet:
    """Endpoints with conversations under way; each request is the next turn of one of them."""

    def __init__(self, count: int, prompt_bytes: int) -> None:
        self.index = PrefixIndex()
        speed = PoolSpeed()
        self.candidates = [
            Candidate(f"pool/{number}", self.index.new_shelf(capacity=1.6e6, max_blocks=100_000), speed)
            for number in range(count)
        ]
        self.fleet = fleet_of(self.candidates)
        seed = seed_of(b"secret", ("model",))
        self.chains = [
            chain_of((number.to_bytes(4, "little") * (prompt_bytes // 4),), seed) for number in range(CONVERSATIONS)
        ]
        self.turn = 0
        self.tokens = prompt_bytes / 4
        for _ in range(3 * CONVERSATIONS):
            self.serve(self.next_chain())

    def next_chain(self) -> PromptChain:
        self.turn += 1
        return self.chains[self.turn % CONVERSATIONS]

    def ask(self, chain: PromptChain) -> Ask:
        return Ask(
            input_tokens=self.tokens,
            output_tokens=250.0,
            request_class=RequestClass.STANDARD,
            chain=chain,
            turn=self.turn,
            now_mono_s=self.turn * 0.01,
        )

    def serve(self, chain: PromptChain) -> None:
        """All that one request costs: pick, claim, first token, end."""
        ask = self.ask(chain)
        candidate, now_mono_s = pick(ask, self.candidates, POLICY, self.index, self.fleet), ask.now_mono_s
        claim = candidate.claim(
            self.index, chain, input_tokens=self.tokens, held_tokens=ask.held_tokens, now_mono_s=now_mono_s
        )
        candidate.first_token(claim, now_mono_s + 0.1)
        candidate.end(
            claim,
            self.index,
            now_mono_s + 1.0,
            is_answered=True,
            input_tokens=int(self.tokens),
            cached_tokens=int(ask.held_tokens),
            output_tokens=200,
            size_per_token=4.0,
        )

    def measure(self) -> dict[str, list[float]]:
        gc.collect()
        gc.freeze()
        picks = _timed(
            lambda: pick(self.ask(self.next_chain()), self.candidates, POLICY, self.index, self.fleet),
            rounds=CONVERSATIONS,
        )
        whole = _timed(lambda: self.serve(self.next_chain()), rounds=CONVERSATIONS)
        return {"pick": picks, "whole": whole}
