"""All replicas that headrace runs: brings what runs to what is declared, and gives the endpoints that exist now."""

import asyncio
from collections.abc import Sequence

from headrace.declaration.addresses import parse_endpoint_url
from headrace.declaration.gateway_plan import EndpointAddress
from headrace.declaration.model import Declaration
from headrace.domain.endpoint import EngineKind, ReplicaPhase
from headrace.domain.operator_error import OperatorError
from headrace.engines.threads import usable_cores
from headrace.fleet.deploy.core.reconcile import Running, Steps, Wanted, reconcile
from headrace.fleet.deploy.core.threads import ThreadDemand, TooManyThreadsError, allot_threads
from headrace.fleet.deploy.engine_process import end_stray, find_adoptable
from headrace.fleet.deploy.machine import available_memory_bytes, resident_bytes
from headrace.fleet.deploy.replica_plan import EngineShape, ReplicaPlan, bounds_of, computes_on_cpu, shape_of
from headrace.fleet.deploy.replica_runner import ReplicaRunner, ReplicaServices
from headrace.fleet.deploy.state_files import file_stem

MEMORY_MARGIN = 1.2
"""A replacement runs beside the old replica only when so many times the old one's memory is available."""
USABLE_S = 10.0
"""Bound for the gateway to use a new replica before the one it replaces is drained."""
STRAY_STOP_S = 10.0
"""Drain bound of an engine that an earlier supervisor left and that is no longer declared."""


class ReplicaFleet:
    """The replicas of one instance.

    Concurrency: one event loop; `run` must be running before `adopt_declaration`.
    """

    def __init__(self, services: ReplicaServices, *, machine_threads: int | None = None) -> None:
        self._services = services
        self._machine_threads = machine_threads or usable_cores()
        self._group: asyncio.TaskGroup | None = None
        self._replacements: list[asyncio.Task[None]] = []
        self.runners: dict[str, ReplicaRunner] = {}
        """By EndpointId; those on their way out included."""

    def check(self, declaration: Declaration) -> None:
        """Refuse what this machine cannot run. Raises: OperatorError."""
        self._shapes(declaration)

    async def run(self, on_running: asyncio.Event) -> None:
        """Hold the replicas' tasks until cancelled; the engines themselves are left to their wardens then."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            on_running.set()
            await asyncio.get_running_loop().create_future()

    def adopt_declaration(self, declaration: Declaration) -> None:
        """Start what is missing, end what is not wanted any more; returns before either is done."""
        for task in self._replacements:
            task.cancel()
        self._replacements.clear()
        for step in self.plan(declaration):
            self._carry_out(step, declaration)
        self._end_strays()

    def plan(self, declaration: Declaration) -> list[Steps[EngineShape]]:
        """What to start, keep and end for `declaration`, by pool; does nothing. Raises: OperatorError."""
        shapes = self._shapes(declaration)
        wanted = {
            name: Wanted(count=declaration.pools[name].replica_count, shape=shape) for name, shape in shapes.items()
        }
        staying = [runner for runner in self.runners.values() if not runner.is_stopping]
        taken: dict[str, frozenset[int]] = {}
        for runner in self.runners.values():
            taken[runner.plan.pool] = taken.get(runner.plan.pool, frozenset[int]()) | {runner.plan.number}
        return reconcile(
            wanted,
            [Running(pool=found.plan.pool, number=found.plan.number, shape=found.plan.shape) for found in staying],
            taken=taken,
            preferred={name: self._left_numbers(name) for name in wanted},
        )

    def endpoints(self, declaration: Declaration) -> dict[str, tuple[EndpointAddress, ...]]:
        """Every endpoint the gateway may know now, by pool: ours when ready or draining, remote ones as declared."""
        found: dict[str, tuple[EndpointAddress, ...]] = {}
        for name, pool in declaration.pools.items():
            if pool.is_remote:
                found[name] = tuple(_remote_address(name, url) for url in pool.endpoints)
                continue
            found[name] = tuple(
                EndpointAddress(
                    endpoint=runner.plan.endpoint,
                    url=str(runner.url),
                    is_draining=runner.life.phase is ReplicaPhase.DRAINING,
                )
                for runner in self.runners.values()
                if runner.plan.pool == name
                and runner.life.phase in (ReplicaPhase.READY, ReplicaPhase.DRAINING)
                and runner.process is not None
            )
        return found

    async def stop(self, *, is_hurried: bool = False) -> None:
        """End every replica; none is left afterwards. May be called again to hurry."""
        for task in self._replacements:
            task.cancel()
        runners = list(self.runners.values())
        for runner in runners:
            runner.request_stop(is_hurried=is_hurried)
        await asyncio.gather(*(runner.wait_for(ReplicaPhase.STOPPED) for runner in runners))

    def _shapes(self, declaration: Declaration) -> dict[str, EngineShape]:
        pools = {name: pool for name, pool in declaration.pools.items() if not pool.is_remote}
        demands = {
            name: ThreadDemand(replicas=pool.replica_count, threads=pool.threads)
            for name, pool in pools.items()
            if computes_on_cpu(pool)
        }
        try:
            threads = allot_threads(self._machine_threads, demands)
        except TooManyThreadsError as error:
            raise OperatorError(str(error), hint="Lower pools.*.threads or replicas, or leave threads out.") from error
        return {name: shape_of(declaration, name, threads.get(name, 1)) for name in pools}

    def _carry_out(self, step: Steps[EngineShape], declaration: Declaration) -> None:
        pool = declaration.pools.get(step.pool)
        if pool is not None:
            for number in step.keep:
                self.runners[f"{step.pool}/{number}"].adopt_bounds(bounds_of(pool))
        plans = [
            ReplicaPlan(pool=step.pool, number=started.number, shape=started.shape, bounds=bounds_of(pool))
            for started in step.start
            if pool is not None
        ]
        ending = [self.runners[f"{step.pool}/{number}"] for number in step.end]
        if not step.is_replacement:
            for plan in plans:
                self._start(plan)
            for runner in ending:
                runner.request_stop()
            return
        assert self._group is not None
        self._replacements.append(self._group.create_task(self._replace(plans, ending)))

    async def _replace(self, plans: Sequence[ReplicaPlan], ending: Sequence[ReplicaRunner]) -> None:
        """New ones beside the old ones, or, where memory is short, after them."""
        if not all(_fits_beside(runner) for runner in ending):
            self._services.log.warning("no memory for both: the old replicas end before the new ones start")
            for runner in ending:
                runner.request_stop()
            await asyncio.gather(*(runner.wait_for(ReplicaPhase.STOPPED) for runner in ending))
        started = [self._start(plan) for plan in plans]
        await asyncio.gather(*(runner.wait_for(ReplicaPhase.READY, ReplicaPhase.STOPPED) for runner in started))
        ready = [runner for runner in started if runner.life.phase is ReplicaPhase.READY]
        await asyncio.gather(*(self._services.wait_usable(runner.plan.endpoint, USABLE_S) for runner in ready))
        for runner in ending:
            runner.request_stop()

    def _start(self, plan: ReplicaPlan) -> ReplicaRunner:
        assert self._group is not None
        runner = ReplicaRunner(plan, self._services)
        self.runners[plan.endpoint] = runner
        self._group.create_task(self._live(runner))
        return runner

    async def _live(self, runner: ReplicaRunner) -> None:
        try:
            await runner.run()
        except Exception:  # the boundary of one replica: a bug there must not end the others
            self._services.log.exception("replica failed in a way it should not", replica=runner.plan.endpoint)
        if self.runners.get(runner.plan.endpoint) is runner:
            del self.runners[runner.plan.endpoint]
        self._services.on_change()

    def _left_numbers(self, pool: str) -> list[int]:
        """Numbers under which an earlier supervisor's engines of this pool still run."""
        prefix = f"engine-{file_stem(pool)}-"
        numbers: list[int] = []
        for path in self._services.settings.run_dir.glob("engine-*.json"):
            number = path.stem.removeprefix(prefix)
            if path.stem.startswith(prefix) and number.isdigit() and find_adoptable(path) is not None:
                numbers.append(int(number))
        return sorted(numbers)

    def _end_strays(self) -> None:
        """End engines of an earlier supervisor that no replica of ours will adopt."""
        assert self._group is not None
        ours = {f"engine-{file_stem(runner.plan.stem)}" for runner in self.runners.values()}
        for path in self._services.settings.run_dir.glob("engine-*.json"):
            state = None if path.stem in ours else find_adoptable(path)
            if state is not None:
                self._services.log.info("engine of an earlier supervisor is not declared: ended", file=path.name)
                self._group.create_task(end_stray(state, STRAY_STOP_S))


def _fits_beside(runner: ReplicaRunner) -> bool:
    """Whether a replacement has room beside it. An engine on a GPU takes most of it, so there never is."""
    shape = runner.plan.shape
    if shape.engine is not EngineKind.LLAMACPP and shape.options.runtime.device == "gpu":
        return False
    pid = runner.process.pid if runner.process else None
    needed, available = resident_bytes(pid) if pid else None, available_memory_bytes()
    return needed is None or available is None or needed * MEMORY_MARGIN < available


def _remote_address(pool: str, url: str) -> EndpointAddress:
    parsed = parse_endpoint_url(url)
    return EndpointAddress(endpoint=f"{pool}/{parsed.host}:{parsed.port}", url=url)
