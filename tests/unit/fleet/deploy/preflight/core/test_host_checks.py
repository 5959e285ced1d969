"""What is said of the machine around the GPUs."""

from typing import Any

import pytest

from headrace.declaration.model import Model, Pool
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.core.host_checks import check_host
from headrace.fleet.deploy.preflight.core.machine import Disk, Machine, ModelFacts, PoolPlan

GIB = 2**30


def plan(*, is_here: bool = True, weight_bytes: int | None = None, **options: Any) -> PoolPlan:
    pool = Pool.model_validate({"model": "m", "engine": "vllm", "parallel": {"tensor": 2}, **options})
    facts = ModelFacts(path="/m", is_here=is_here)
    return PoolPlan(name="p", pool=pool, model=Model(weight_bytes=weight_bytes), repository="m", facts=facts)


def found(plan: PoolPlan, **facts: Any) -> dict[str, Finding]:
    return {finding.code: finding for finding in check_host(plan, Machine(**facts))}


def level(code: str, plan: PoolPlan, **facts: Any) -> Level | None:
    finding = found(plan, **facts).get(code)
    return None if finding is None else finding.level


@pytest.mark.parametrize(("shm_bytes", "wanted"), [(0, "fail"), (GIB - 1, "fail"), (GIB, "ok"), (None, "warn")])
def test_gpus_that_talk_need_shared_memory(shm_bytes: int | None, wanted: str) -> None:
    """1 GiB will do, less will not."""
    assert level("shm", plan(), shm_bytes=shm_bytes) == wanted
    assert level("shm", plan(parallel={"tensor": 1}), shm_bytes=shm_bytes) is None


@pytest.mark.parametrize(
    ("open_files", "wanted"), [(1023, "fail"), (1024, "warn"), (65_535, "warn"), (65_536, "ok"), (None, None)]
)
def test_open_files_bound_the_streams(open_files: int | None, wanted: str | None) -> None:
    """Too few fail, few are a doubt."""
    assert level("ulimits", plan(), open_files=open_files) == wanted


def test_a_model_that_is_to_be_fetched_needs_its_room() -> None:
    """With a margin; one that is here needs none; a network disk is slow."""
    disk = Disk(path="/d", free_bytes=105 * 10**9, filesystem="ext4")
    assert level("disk", plan(is_here=False, weight_bytes=100 * 10**9), disk=disk) == "ok"
    assert level("disk", plan(is_here=False, weight_bytes=101 * 10**9), disk=disk) == "fail"
    assert level("disk", plan(weight_bytes=200 * 10**9), disk=disk) == "ok"
    assert level("disk", plan(), disk=Disk(path="/d", free_bytes=1, filesystem="nfs4")) == "warn"


def test_every_replicas_port_is_looked_at() -> None:
    """The second of two replicas has the next port."""
    two = plan(port=9000, replicas=2)
    assert level("port", two, ports=frozenset((9001,))) == "fail"
    assert level("port", two, ports=frozenset((8999, 9002))) == "ok"
    assert level("port", plan(), ports=frozenset((9000,))) == "ok"


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ("", "ok"),
        ("eth", "ok"),
        ("=eth0", "ok"),
        ("=eth", "fail"),
        ("eth1", "fail"),
        ("ib0,eth0", "ok"),
        ("^lo,eth", "fail"),
        ("nothing", "fail"),
    ],
)
def test_nccl_finds_an_interface_by_its_own_rules(named: str, wanted: str) -> None:
    """Prefixes, whole names after =, exclusions after ^; a chosen interface must be up."""
    env = {"NCCL_SOCKET_IFNAME": named} if named else {}
    assert level(
        "nccl-interface", plan(runtime={"env": env}), interfaces={"lo": True, "eth0": True, "eth1": False}
    ) == (wanted)


def test_disaggregation_wants_rdma_and_locked_memory() -> None:
    """Without them KV transfer works, slowly."""
    apart = plan(disaggregation={"role": "prefill"})
    said = found(apart, rdma=(), locked_bytes=65_536)
    assert (said["rdma"].level, said["memlock"].level) == (Level.WARN, Level.WARN)
    assert found(apart, rdma=("mlx5_0",), locked_bytes=-1)["rdma"].level is Level.OK
    assert "rdma" not in found(plan(), rdma=())


def test_a_container_needs_its_runtime() -> None:
    """docker must be there, and show GPUs."""
    boxed = plan(runtime={"command": ["docker", "exec", "engines", "vllm"]})
    assert level("container-runtime", boxed, runtimes=frozenset()) == "fail"
    assert level("container-runtime", boxed, runtimes=frozenset(("docker",))) == "fail"
    assert level("container-runtime", boxed, runtimes=frozenset(("docker", "nvidia"))) == "ok"
    assert level("container-runtime", plan(), runtimes=frozenset()) is None


def test_the_clock_may_be_two_seconds_off() -> None:
    """More is a fault; not being kept is a doubt."""
    assert level("clock", plan(), clock_offset_s=2.0) == "ok"
    assert level("clock", plan(), clock_offset_s=-2.1) == "fail"
    assert level("clock", plan(), is_clock_synchronized=False) == "warn"
    assert level("clock", plan()) is None
