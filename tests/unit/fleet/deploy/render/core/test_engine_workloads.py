"""Pools as workloads: image, user, devices, address, secrets, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.engine_workloads import own_pools
from headrace.fleet.deploy.render.core.model import OwnAddress, SecretVariable, Workload
from headrace.fleet.deploy.render.core.rendering import make_engines
from headrace.fleet.deploy.render.core.site import container_site, host_site

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _declaration(pool: dict[str, Any] | None = None, **model: Any) -> Declaration:
    return Declaration.model_validate(
        {
            "models": {"chat": {"source": f"hf:acme/chat@{COMMIT}", **model}},
            "pools": {"main": {"model": "chat", "engine": "vllm", **(pool or {})}},
        }
    )


def _workload(pool: dict[str, Any] | None = None, **model: Any) -> Workload:
    declaration = _declaration(pool, **model)
    (workload,) = make_engines(declaration, container_site(declaration)).workloads
    return workload


def _errors(pool: dict[str, Any] | None = None, **model: Any) -> Sequence[str]:
    declaration = _declaration(pool, **model)
    engines = make_engines(declaration, container_site(declaration))
    assert engines.workloads == () if engines.errors else engines.workloads
    return [f"{note.key} {note.message}" for note in engines.errors]


def test_an_engine_runs_in_its_own_image_pinned() -> None:
    """Without an image a known one is taken; a version chooses another, an image of one's own wins."""
    assert _workload().image.reference == "docker.io/vllm/vllm-openai:v0.32.0"
    older = _workload({"container": {"engine_version": "0.33.0"}}).image
    assert (older.reference, older.origin) == (
        "docker.io/vllm/vllm-openai:v0.33.0",
        "pools.main.container.engine_version",
    )
    own = _workload({"container": {"image": "registry.example.com/vllm:7", "command": ["run-vllm"]}})
    assert own.argv[:2] == ("run-vllm", "serve")
    assert own.image.engine_version is None


def test_an_image_that_is_not_known_is_refused() -> None:
    """A version without an image, and an engine without one for CPUs, are errors that name what is known."""
    (said,) = _errors({"container": {"engine_version": "0.1.0"}})
    assert said.startswith("pools.main.container.engine_version vllm 0.1.0 is not among the versions")
    assert "0.32.0, 0.33.0" in said
    (said,) = _errors({"runtime": {"device": "cpu"}})
    assert "has no image for CPUs" in said


@pytest.mark.parametrize(
    ("pool", "user"),
    [
        ({}, "2000:0"),
        ({"engine": "sglang"}, None),
        ({"engine": "tensorrt-llm"}, None),
        ({"engine": "llamacpp"}, "65532:65532"),
        ({"engine": "sglang", "container": {"user": "1000:1000"}}, "1000:1000"),
    ],
)
def test_an_engine_has_no_more_rights_than_its_image_needs(pool: dict[str, Any], user: str | None) -> None:
    """Root only where the image belongs to root and nothing else is declared."""
    workload = _workload(pool, source="file:/srv/chat.gguf")
    assert workload.image.user == user
    assert workload.image.user_reason


def test_a_replica_listens_for_others_in_a_container_and_for_itself_on_a_machine() -> None:
    """In a container all addresses, on the machine the loopback one, with a port for each replica."""
    declaration = _declaration({"port": 31000, "placement": {"replicas": 2}})
    (inside,) = make_engines(declaration, container_site(declaration)).workloads
    assert inside.args[inside.args.index("--host") + 1] == "0.0.0.0"
    assert (inside.replicas, inside.http_port) == (2, 31000)
    first, second = make_engines(declaration, host_site(declaration)).workloads
    assert second.args[second.args.index("--host") + 1] == "127.0.0.1"
    assert (first.http_port, second.http_port) == (31000, 31001)


def test_gpus_follow_from_the_layout() -> None:
    """Tensor x pipeline x data, none on CPUs, or as declared; several nodes where one has too few."""
    assert _workload().gpus == 1
    spread = _workload({"parallel": {"tensor": 8, "pipeline": 2}, "placement": {"gpus_per_node": 8}})
    assert (spread.gpus, spread.nodes, spread.gpus_per_node) == (16, 2, 8)
    assert _workload({"engine": "llamacpp"}, source="file:/srv/chat.gguf").gpus == 0
    on_gpu = _workload({"engine": "llamacpp", "placement": {"gpus": 1}}, source="file:/srv/chat.gguf")
    assert (on_gpu.gpus, on_gpu.image.reference.partition(":")[2]) == (1, "server-cuda-b11434")


@pytest.mark.parametrize(
    ("container", "gpus", "expected"),
    [({}, 1, 2**30), ({}, 4, 2**34), ({"shm_bytes": 2**31}, 4, 2**31), ({"ipc": "host"}, 4, None)],
)
def test_shared_memory(container: dict[str, Any], gpus: int, expected: int | None) -> None:
    """Enough for devices that talk through it, as declared, or the host's."""
    assert _workload({"container": container, "parallel": {"tensor": gpus}}).shm_bytes == expected


def test_secrets_stay_references() -> None:
    """A variable that is one reference refers to it; one with more in it cannot be rendered."""
    workload = _workload({"runtime": {"env": {"HF_TOKEN": "${env:HUB_TOKEN}", "PLAIN": "$x"}}})
    values = {one.name: one.value for one in workload.env}
    assert values["HF_TOKEN"] == SecretVariable(variable="HUB_TOKEN")
    assert values["PLAIN"] == "$x"
    (said,) = _errors({"runtime": {"env": {"HF_TOKEN": "Bearer ${env:HUB_TOKEN}"}}})
    assert said.startswith("pools.main.runtime.env.HF_TOKEN holds a reference within other text")


def test_a_disaggregated_replica_says_its_own_address() -> None:
    """vLLM's side channel is the container's address, which is known when it runs; on a machine it is fixed."""
    pool = {"disaggregation": {"role": "prefill"}, "telemetry": {"kv_events": True}}
    workload = _workload(pool)
    values = {one.name: one.value for one in workload.env}
    assert values["VLLM_NIXL_SIDE_CHANNEL_HOST"] == OwnAddress()
    assert [(port.name, port.number) for port in workload.ports] == [
        ("http", 30000),
        ("kv-events", 40000),
        ("kv-replay", 45000),
        ("kv-transfer", 50000),
    ]
    declaration = _declaration(pool)
    (on_machine,) = make_engines(declaration, host_site(declaration)).workloads
    assert {one.name: one.value for one in on_machine.env}["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "127.0.0.1"


def test_what_cannot_be_placed_is_refused() -> None:
    """A revision that moves, nodes that would not be equal, and layouts that an engine lacks."""
    assert _errors(source="hf:acme/chat@main")[0].startswith('models.chat.source names the revision "main"')
    assert "its nodes would not be equal" in _errors({"parallel": {"tensor": 6}, "placement": {"gpus_per_node": 4}})[0]
    assert _errors({"parallel": {"data": 4}, "placement": {"gpus_per_node": 2}})[0].startswith(
        "pools.main.parallel.data is more than 1 on several nodes"
    )
    assert (
        "does not spread over nodes"
        in _errors({"engine": "llamacpp", "placement": {"gpus": 4, "gpus_per_node": 2}}, source="file:/srv/chat.gguf")[
            0
        ]
    )


def test_loading_takes_as_long_as_reading_does() -> None:
    """Weights over the declared rate, and a start; a bound below it is warned about."""
    declaration = _declaration(
        {"load_timeout_s": 60, "placement": {"read_bytes_per_s": 1e8}}, weight_bytes=16_000_000_000
    )
    engines = make_engines(declaration, container_site(declaration))
    assert engines.workloads[0].expected_load_s == 250.0
    assert [f"{note.key} {note.message}" for note in engines.notes] == [
        "pools.main.load_timeout_s is 60, but loading is expected to take 250 s"
    ]


def test_pools_elsewhere_and_pools_of_nothing_are_left_out() -> None:
    """Endpoints that run elsewhere are not deployed, nor a pool with no replicas."""
    declaration = Declaration.model_validate(
        {
            "models": {"chat": {"source": "file:/srv/chat"}},
            "pools": {
                "far": {"model": "chat", "engine": "openai", "endpoints": ["https://far.example.com"]},
                "none": {"model": "chat", "engine": "vllm", "placement": {"replicas": 0}},
                "here": {"model": "chat", "engine": "vllm", "replicas": 3},
            },
        }
    )
    assert [(plan.name, plan.replicas) for plan in own_pools(declaration)] == [("here", 3)]
    assert own_pools(declaration, "far") == []


def test_weights_of_a_draft_are_there_too() -> None:
    """Speculative decoding reads two models, each at its place."""
    declaration = Declaration.model_validate(
        {
            "models": {
                "chat": {"source": f"hf:acme/chat@{COMMIT}"},
                "draft": {"source": "file:/srv/draft"},
            },
            "pools": {
                "main": {"model": "chat", "engine": "vllm", "speculative": {"method": "draft", "model": "draft"}}
            },
        }
    )
    (workload,) = make_engines(declaration, container_site(declaration)).workloads
    assert [(str(one.path), one.is_draft) for one in workload.weights] == [
        (f"/models/snapshots/acme--chat/{COMMIT}", False),
        ("/models/local/draft", True),
    ]
    assert Path(workload.args[workload.args.index("--spec-model") + 1]) == Path("/models/local/draft")
