"""Which GPUs of one machine each replica gets."""

from typing import Any

import pytest

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.devices import assign_gpus, machine_notes
from headrace.fleet.deploy.render.core.model import Workload
from headrace.fleet.deploy.render.core.rendering import make_engines
from headrace.fleet.deploy.render.core.site import container_site


def _workloads(**pools: dict[str, Any]) -> tuple[Workload, ...]:
    declaration = Declaration.model_validate(
        {
            "models": {"m": {"source": "file:/srv/m"}},
            "pools": {name: {"model": "m", "engine": "vllm", **pool} for name, pool in pools.items()},
        }
    )
    return make_engines(declaration, container_site(declaration)).workloads


def test_devices_are_counted_up_around_those_declared() -> None:
    """CUDA_VISIBLE_DEVICES of one pool is left to it; the others take what is free, in order."""
    workloads = _workloads(
        a={"parallel": {"tensor": 2}, "placement": {"replicas": 2}},
        b={"runtime": {"env": {"CUDA_VISIBLE_DEVICES": "0, 3"}}, "parallel": {"tensor": 2}},
    )
    assert assign_gpus(workloads) == {("a", 0): ("1", "2"), ("a", 1): ("4", "5"), ("b", 0): ("0", "3")}


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ({"placement": {"gpus_per_node": 4, "replicas": 4}}, None),
        ({"placement": {"gpus_per_node": 4, "replicas": 5}}, "is 4, but all replicas together need 5 GPUs"),
        ({"parallel": {"tensor": 8}, "placement": {"gpus_per_node": 4}}, "spreads a replica over 2 nodes"),
        ({"runtime": {"env": {"CUDA_VISIBLE_DEVICES": "0,1"}}}, "names 2 devices, but a replica needs 1"),
        (
            {"runtime": {"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "placement": {"replicas": 2}},
            "gives all 2 replicas the same devices",
        ),
    ],
)
def test_what_one_machine_cannot_hold_is_refused(pool: dict[str, Any], said: str | None) -> None:
    """More GPUs than it has, several nodes, devices that do not fit the layout."""
    notes = [note.message for note in machine_notes(_workloads(a=pool))]
    assert [said is not None and said in note for note in notes] == ([True] if said else [])
