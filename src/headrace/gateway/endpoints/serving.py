"""Which models are served, by which pools, and what their engines understand: the plan, ready for look-ups."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.declaration.gateway_plan import GatewayPlan, PoolPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import Driver, FieldRule
from headrace.engines.registry import DRIVERS, driver_for


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One declared model and the pools that serve it."""

    name: str
    pools: tuple[PoolPlan, ...]
    drivers: tuple[Driver, ...]
    """Distinct drivers of those pools."""

    def serves(self, path: str, pool: PoolPlan) -> bool:
        """Whether `pool` answers `path` (such as `/v1/embeddings`): not where its engine has no way to keep tenants
        apart, and the pool is declared to.
        """
        if (path == "/v1/embeddings") != pool.embeddings and pool.is_run_here:
            return False
        dialect = driver_for(EngineKind(pool.engine)).dialect
        return path in dialect.paths and (not pool.isolates_tenants or path in dialect.salted_paths)

    def pools_for(self, path: str) -> tuple[PoolPlan, ...]:
        return tuple(pool for pool in self.pools if self.serves(path, pool))


def serving_table(plan: GatewayPlan) -> Mapping[str, ServedModel]:
    """Make the table of models from a plan."""
    table: dict[str, ServedModel] = {}
    for name in plan.models:
        pools = tuple(pool for pool in plan.pools if pool.model == name)
        kinds = dict.fromkeys(EngineKind(pool.engine) for pool in pools)
        table[name] = ServedModel(name=name, pools=pools, drivers=tuple(driver_for(kind) for kind in kinds))
    return table


def auto_table(plan: GatewayPlan, models: Mapping[str, ServedModel]) -> Mapping[str, ServedModel]:
    """What requests are read by that ask for a name of `auto_models`: all pools of the models that it stands for."""
    table: dict[str, ServedModel] = {}
    for auto in plan.auto_models:
        served = [models[each.model] for each in auto.candidates if each.model in models]
        pools = tuple(pool for model in served for pool in model.pools)
        drivers = tuple(dict.fromkeys(driver for model in served for driver in model.drivers))
        table[auto.name] = ServedModel(name=auto.name, pools=pools, drivers=drivers)
    return table


def fields_with_rule(rule: FieldRule) -> frozenset[str]:
    """All fields that any engine's driver gives this rule: what is dangerous on one engine is kept from all."""
    return frozenset(
        name for kind in DRIVERS for name, found in driver_for(kind).dialect.fields.items() if found is rule
    )


def output_limit_aliases() -> frozenset[str]:
    """All names, of any engine, for the one output limit."""
    return frozenset(alias for kind in DRIVERS for alias in driver_for(kind).dialect.output_limit_aliases)
