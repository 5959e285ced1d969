"""What `headrace render` needs beyond what a local start does: images, nodes, volumes, the gateway's own deployment.

`pools.<name>.container` and `.placement` stand beside a pool, `deployment` stands at the top. `headrace up` reads none
of them.
"""

import re
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from headrace.declaration.kubernetes_sections import Kubernetes
from headrace.declaration.shape import Section

IMAGE = re.compile(r"[a-z0-9][\w./:-]*?(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?", re.ASCII)
"""REGISTRY/REPOSITORY:TAG@DIGEST. Source: the OCI distribution specification, in short."""


def check_image(text: str | None) -> str | None:
    """Refuse an image that can be another one tomorrow."""
    if text is None:
        return None
    found = IMAGE.fullmatch(text)
    if found is None:
        raise ValueError("is not an image; write REPOSITORY:TAG or REPOSITORY:TAG@sha256:DIGEST")
    if found["tag"] == "latest" or (found["tag"] is None and found["digest"] is None):
        raise ValueError("is not pinned: it can be another image tomorrow. Give a tag other than latest, or a digest")
    return text


class Container(Section):
    """The container of one replica."""

    engine_version: str | None = Field(
        default=None,
        min_length=1,
        description="Version of the engine, such as 0.32.0: chooses the image where none is given; null: the one that "
        "docs/rendering.md lists first.",
    )
    image: str | None = Field(
        default=None,
        description="Image with a tag or a digest, never latest; null: the engine's own of `engine_version`.",
    )
    command: tuple[str, ...] = Field(
        default=(), description="Words that start the engine in the image; empty: as the engine's own image does."
    )
    user: str | None = Field(
        default=None,
        pattern=r"^\d+(:\d+)?$",
        description="UID or UID:GID of the engine's process; null: one without rights where the image allows it.",
    )
    ipc: Literal["private", "host"] = Field(
        default="private", description="Shared memory: private to the container, of `shm_bytes`, or the host's."
    )
    shm_bytes: int | None = Field(
        default=None,
        ge=67108864,
        description="Size of a private /dev/shm, bytes; null: 16 GiB with more than one device, else 1 GiB.",
    )

    _image = field_validator("image")(check_image)


class Placement(Section):
    """Where a pool's replicas are put, and how many."""

    replicas: int | None = Field(
        default=None, ge=0, le=1024, description="Replicas to deploy; null: the pool's `replicas`, else 1."
    )
    gpus: int | None = Field(
        default=None,
        ge=0,
        le=4096,
        description="GPUs of one replica; null: parallel.tensor x pipeline x data, and none for llamacpp or on CPUs.",
    )
    gpus_per_node: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="GPUs of one node: a replica that needs more spreads over several; null: one node has enough.",
    )
    gpu_resource: str = Field(
        default="nvidia.com/gpu", min_length=1, description="Kubernetes: name of the GPU resource that is requested."
    )
    node_selector: dict[str, str] = Field(default={}, description="Kubernetes: labels that the node must have.")
    runtime_class: str | None = Field(
        default=None, min_length=1, description="Kubernetes: RuntimeClass of the pods, such as nvidia."
    )
    read_bytes_per_s: float = Field(
        default=1e9,
        gt=0,
        description="How fast a replica reads its weights, bytes per second: gives the expected load time.",
    )


class ModelVolume(Section):
    """Where weights are kept for engines in containers. The layout inside is that of headrace's cache folder."""

    host_dir: str = Field(
        default="/var/lib/headrace/models",
        pattern=r"^/[^\s:]+$",
        description="docker, compose, systemd: folder of the machine, mounted read-only into engines.",
    )
    mount_path: str = Field(default="/models", pattern=r"^/[^\s:]+$", description="Where containers see it, read-only.")
    claim: str | None = Field(
        default=None, min_length=1, description="Kubernetes: PersistentVolumeClaim to use; null: one is made."
    )
    size_bytes: int | None = Field(
        default=None, ge=1, description="Kubernetes: size of the claim that is made, bytes; null: twice the weights."
    )
    storage_class: str | None = Field(
        default=None, min_length=1, description="Kubernetes: StorageClass of the claim; null: the cluster's own."
    )
    access: Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"] = Field(
        default="ReadWriteMany", description="Kubernetes: access mode of the claim."
    )


class GatewayDeployment(Section):
    """The gateway as it is deployed."""

    image: str | None = Field(
        default=None, description="Image of headrace, pinned; null: headrace:VERSION, built from its Dockerfile."
    )
    replicas: int = Field(default=1, ge=1, le=64, description="Kubernetes: gateways.")
    python: str = Field(
        default="/usr/local/lib/headrace/bin/python",
        min_length=1,
        description="systemd: Python of the environment in which headrace is installed.",
    )

    _image = field_validator("image")(check_image)


class ServiceDeployment(Section):
    """A database or cache that is deployed beside the gateway."""

    image: str = Field(description="Image, pinned.")
    storage_bytes: int = Field(default=10737418240, ge=1, description="Kubernetes: size of its volume, bytes.")

    _image = field_validator("image")(check_image)


class Deployment(Section):
    """What `headrace render` writes beside the pools."""

    namespace: str = Field(
        default="headrace",
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        description="Kubernetes namespace, compose project, prefix of container and unit names.",
    )
    models: ModelVolume = Field(default=ModelVolume(), description="Where weights are kept.")
    gateway: GatewayDeployment = Field(default=GatewayDeployment(), description="The gateway itself.")
    redis: ServiceDeployment | None = Field(
        default=None, description="Deploy Redis (or Valkey) for limits that gateways share; null: none."
    )
    postgres: ServiceDeployment | None = Field(
        default=None, description="Deploy PostgreSQL for the ledger; null: none, see ledger.database."
    )
    kubernetes: Kubernetes = Field(default=Kubernetes(), description="What is common to all Kubernetes objects.")
    user: str = Field(
        default="65532:65532",
        pattern=r"^\d+:\d+$",
        description="UID:GID without rights, for the gateway and for engines whose image allows it; systemd makes "
        "users of its own.",
    )

    @model_validator(mode="after")
    def _distinct_places(self) -> Self:
        if self.models.mount_path in ("/", "/tmp"):  # noqa: S108 # compared, not used
            raise ValueError("models.mount_path hides a folder that the engine needs: choose another")
        return self
