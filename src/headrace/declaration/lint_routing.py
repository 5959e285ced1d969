"""What the types cannot see of `routing` and `accepts`: names that lead nowhere, and policies without effect."""

from collections.abc import Iterator

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean


def lint_routing(declaration: Declaration) -> Iterator[Finding]:
    """Yield what is wrong or doubtful."""
    for name, model in declaration.models.items():
        path, routing = ("models", name, "routing"), model.routing
        pools = [pool for pool, section in declaration.pools.items() if section.model == name]
        for pool in routing.split:
            if pool not in pools:
                yield error((*path, "split", pool), "no pool of this name serves the model", did_you_mean(pool, pools))
        left_out = [pool for pool in pools if not routing.split.get(pool)]
        if routing.split and left_out:
            yield warning((*path, "split"), f"gives nothing to {', '.join(left_out)} while others are usable")
        if not any(scorer.weight for scorer in routing.scorers):
            yield warning((*path, "scorers"), "every weight is 0: endpoints take turns")
        kinds = {scorer.kind for scorer in routing.scorers}
        if kinds == {"prefix-match"} and routing.brake_factor is None:
            yield warning(
                (*path, "brake_factor"),
                "prompts alone decide, and nothing spreads one that everybody uses",
                "Set a brake_factor, or add the scorer least-loaded.",
            )
        if "prefix-match" in kinds and not routing.prefix_index.enabled:
            yield warning((*path, "prefix_index", "enabled"), "the scorer prefix-match sees nothing without it")
    for name, pool in declaration.pools.items():
        for number, tenant in enumerate(pool.accepts.tenants):
            if tenant not in declaration.tenants:
                hint = did_you_mean(tenant, declaration.tenants)
                yield error(("pools", name, "accepts", "tenants", number), "there is no such tenant", hint)
