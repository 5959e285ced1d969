"""Which pools of a model a request may go to: whom each takes, and what share of the traffic a split gives it.

1. `accepts.tenants` is a border: never crossed.
2. `accepts.classes` and lengths are a preference, where the pool says `overflow`: crossed when nothing else is usable
   or, where it says `overflow_when: full`, has a free place.
3. `split` picks one of what is left, by weight: a conversation stays where it is, the rest by turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.declaration.routing_plan import AcceptsPlan


@dataclass(slots=True, kw_only=True)
class PoolRules:
    """Of one model whose pools or routing declare rules. Not for use by several threads at once."""

    accepts: Mapping[str, AcceptsPlan]
    """By pool; those that take everything are left out."""
    split: Mapping[str, float]
    _served: dict[str, int] = field(default_factory=dict[str, int])

    def judge(self, pool: str, tenant: str, request_class: str, input_tokens: int) -> tuple[str | None, bool]:
        """Return why the pool does not take the request (None: it does), and whether it does so in need."""
        rule = self.accepts.get(pool)
        if rule is None:
            return None, True
        if rule.tenants and tenant not in rule.tenants:
            return f"accepts tenants {', '.join(sorted(rule.tenants))}", False
        if rule.classes and request_class not in rule.classes:
            return f"accepts classes {', '.join(sorted(rule.classes))}", rule.overflow
        if rule.min_input_tokens is not None and input_tokens < rule.min_input_tokens:
            return f"accepts prompts of {rule.min_input_tokens} tokens or more", rule.overflow
        if rule.max_input_tokens is not None and input_tokens > rule.max_input_tokens:
            return f"accepts prompts of {rule.max_input_tokens} tokens or fewer", rule.overflow
        return None, True

    def sort(
        self, pools: Sequence[str], tenant: str, request_class: str, input_tokens: int
    ) -> tuple[list[str], list[str]]:
        """Return the pools that take the request, and those that do in need."""
        judged = [(pool, *self.judge(pool, tenant, request_class, input_tokens)) for pool in pools]
        wanted = [pool for pool, reason, _ in judged if reason is None]
        in_need = [pool for pool, reason, overflows in judged if reason is not None and overflows]
        return wanted, in_need

    def spill(self, pools: Sequence[str], tenant: str, request_class: str, input_tokens: int) -> list[str]:
        """Return the pools that take the request while those that it is for have no free place."""
        _, in_need = self.sort(pools, tenant, request_class, input_tokens)
        return [pool for pool in in_need if self.accepts[pool].overflows_full]

    def pick_split(self, pools: Sequence[str], sticky: int | None) -> str | None:
        """Return the pool of `pools` that this request goes to by weight; None where no split is declared.

        `sticky`: a number that is the same for a conversation; None: the pool that is furthest below its share.
        """
        weights = [(pool, self.split.get(pool, 0.0)) for pool in pools]
        total = sum(weight for _, weight in weights)
        if total <= 0.0:
            return None
        if sticky is None:
            served = self._served
            pool = min(
                (pool for pool, weight in weights if weight > 0.0),
                key=lambda pool: (served.get(pool, 0) + 1) / self.split[pool],
            )
            served[pool] = served.get(pool, 0) + 1
            return pool
        point = (sticky & 0xFFFFFFFF) / 2**32 * total
        for pool, weight in weights:
            point -= weight
            if point < 0.0:
                return pool
        return pools[-1]

    def give_back(self, pool: str) -> None:
        """A turn that `pick_split` gave was only looked at."""
        self._served[pool] -= 1


def make_rules(accepts: Mapping[str, AcceptsPlan | None], split: Mapping[str, float]) -> PoolRules | None:
    """None where nothing is declared, so that nobody asks."""
    found = {pool: rule for pool, rule in accepts.items() if rule is not None}
    return PoolRules(accepts=found, split=dict(split)) if found or split else None
