"""What only `headrace render kubernetes` reads: `pools.<name>.kubernetes` and `deployment.kubernetes`."""

from typing import Literal, Self

from pydantic import Field, field_serializer, model_validator

from headrace.declaration.shape import HIDDEN, SECRET_NAMES, Name, Section, is_secret_name

LABEL = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"
"""Names of Kubernetes objects. Source: RFC 1123 subdomains, which most kinds ask for."""


class Toleration(Section):
    """A taint of nodes that pods bear."""

    key: str | None = Field(default=None, min_length=1, description="Key of the taint; null: all.")
    operator: Literal["Exists", "Equal"] = Field(default="Exists", description="Equal compares `value`.")
    value: str | None = Field(default=None, description="Value of the taint, with Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; null: all."
    )

    @model_validator(mode="after")
    def _value_is_compared(self) -> Self:
        if (self.operator == "Equal") != (self.value is not None):
            raise ValueError("value goes with operator: Equal, and Equal needs one")
        if self.key is None and self.operator == "Equal":
            raise ValueError("operator Equal needs a key")
        return self


class Autoscale(Section):
    """How many replicas, by the engines' own queue and KV cache. Fewer only when streams have had time to end."""

    minimum: int = Field(default=1, ge=1, le=1024, description="Least replicas.")
    maximum: int = Field(ge=1, le=1024, description="Most replicas.")
    waiting: float = Field(
        default=2.0, gt=0, description="Requests waiting in a replica's own queue, on average, above which more start."
    )
    kv_utilization: float = Field(
        default=0.85, gt=0, le=1, description="Share of the KV cache in use, on average, above which more start."
    )
    by: Literal["keda", "hpa"] = Field(
        default="keda",
        description="keda: a ScaledObject that asks `deployment.kubernetes.prometheus`; hpa: a HorizontalPodAutoscaler "
        "on metrics of pods, which an adapter (prometheus-adapter) must serve under the engine's own names.",
    )
    settle_s: int | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="How long fewer replicas must have been enough before one stops, seconds; null: the drain bound "
        "and a start, at least 300.",
    )

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.maximum < self.minimum:
            raise ValueError("maximum is less than minimum")
        return self


class EngineBuild(Section):
    """How a TensorRT engine is built from the weights, up to TensorRT-LLM 1.2."""

    convert_script: str | None = Field(
        default=None,
        min_length=1,
        description="The model family's convert_checkpoint.py in the image; null: by the name of the repository.",
    )
    dtype: Literal["auto", "bfloat16", "float16"] = Field(
        default="auto", description="Number format of the converted weights; auto: the model's."
    )
    tokens_per_batch: int | None = Field(
        default=None, ge=1, description="--max_num_tokens of the build; null: batching.batched_tokens, else 8192."
    )
    sequences: int | None = Field(
        default=None, ge=1, description="--max_batch_size of the build; null: batching.max_sequences, else 256."
    )
    timeout_s: int = Field(default=14400, ge=60, description="Longest time of the build, seconds.")


class KubernetesPool(Section):
    """The objects of one pool."""

    strategy: Literal["recreate", "rolling", "blue-green"] = Field(
        default="recreate",
        description="recreate: old pods go before new ones come (no spare GPUs needed); rolling: one more pod at a "
        "time; blue-green: a whole second set, see `colour` and `serve`.",
    )
    colour: Literal["blue", "green"] = Field(
        default="blue", description="With blue-green, the set that this declaration is rendered as."
    )
    serve: Literal["blue", "green"] = Field(
        default="blue", description="With blue-green, the set to which requests are sent."
    )
    several_nodes: Literal["leader-worker-set", "stateful-set"] = Field(
        default="leader-worker-set",
        description="What makes a replica over several nodes: LeaderWorkerSet (its controller must be installed; "
        "restarts a replica as a whole) or one StatefulSet for each replica.",
    )
    mpi_keys: str | None = Field(
        default=None,
        pattern=LABEL,
        description="tensorrt-llm over several nodes: Secret with id_ed25519 and id_ed25519.pub, by which MPI starts "
        "processes over ssh; `container.image` must have an ssh server.",
    )
    grace_s: int | None = Field(
        default=None,
        ge=1,
        le=86400,
        description="terminationGracePeriodSeconds, in place of `stop_s`: from a pod's deletion to its kill, of which "
        "the engine may drain when the gateway sends no more; null: `stop_s` after that moment.",
    )
    cpus: float | None = Field(default=None, gt=0, description="CPUs requested for one pod; null: none.")
    memory_bytes: int | None = Field(
        default=None, ge=1, description="Memory requested, and at most used, by one pod, bytes; null: none."
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        default=None, description="Taints that pods bear; null: that of nodes with GPUs, where it has any."
    )
    resources: dict[str, int] = Field(
        default={}, description="More resources of one pod, such as rdma/ib: 1, requested and limited."
    )
    capabilities: tuple[str, ...] = Field(
        default=(), description="Linux capabilities beside none, such as IPC_LOCK for RDMA."
    )
    read_only_root: bool | None = Field(
        default=None,
        description="Read-only root file system; null: where the engine is known to run on one (llamacpp).",
    )
    autoscale: Autoscale | None = Field(default=None, description="More and fewer replicas by load; null: fixed.")
    tensorrt: Literal["auto", "pytorch", "engine", "triton"] = Field(
        default="auto",
        description="tensorrt-llm: pytorch serves Hugging Face weights; engine builds a TensorRT engine first, which "
        "only versions up to 1.2 can; triton serves such an engine by Triton; auto: engine up to 1.2, then pytorch.",
    )
    build: EngineBuild = Field(default=EngineBuild(), description="How a TensorRT engine is built.")

    @model_validator(mode="after")
    def _colours(self) -> Self:
        if self.strategy != "blue-green" and (self.colour, self.serve) != ("blue", "blue"):
            raise ValueError("colour and serve go with strategy: blue-green")
        return self


class Environment(Section):
    """What differs in one environment: an overlay of kustomize."""

    namespace: str | None = Field(
        default=None, pattern=LABEL, description="Null: deployment.namespace and the environment's name."
    )
    replicas: dict[Name, int] = Field(default={}, description="Replicas of pools, by pool; others stay.")
    gateway_replicas: int | None = Field(default=None, ge=1, le=64, description="Gateways; null: as declared.")


class Kubernetes(Section):
    """What is common to all objects."""

    secret: str = Field(
        default="headrace",
        pattern=LABEL,
        description="Secret that holds what the declaration names as ${env:NAME} (key NAME) and ${file:PATH}. It is "
        "not rendered.",
    )
    pull_secrets: tuple[str, ...] = Field(default=(), description="Secrets for pulling images.")
    fetch_timeout_s: int = Field(
        default=7200, ge=1, description="Longest time an init container may fetch a model, seconds."
    )
    fetch_env: dict[str, str] = Field(
        default={},
        description="Environment of the init containers that fetch, such as HF_ENDPOINT, PIP_INDEX_URL or HTTPS_PROXY; "
        "secrets as ${env:NAME}.",
        json_schema_extra=SECRET_NAMES,
    )
    pod_monitors: bool = Field(
        default=False, description="Write a PodMonitor for the gateway and each pool (prometheus-operator)."
    )
    metrics_from: dict[str, str] = Field(
        default={},
        description="Labels of the namespace whose pods may read metrics, such as "
        "kubernetes.io/metadata.name: monitoring; empty: none but the gateway.",
    )
    prometheus: str | None = Field(
        default=None, min_length=1, description="URL of the Prometheus that KEDA asks; needed for autoscale by keda."
    )
    gateway_maximum: int | None = Field(
        default=None, ge=1, le=64, description="Gateways at most, by their use of CPU; null: a fixed number."
    )
    gateway_cpus: float = Field(default=1.0, gt=0, description="CPUs requested for one gateway.")
    gateway_memory_bytes: int = Field(
        default=1073741824, ge=134217728, description="Memory requested for one gateway, and its bound, bytes."
    )
    state_bytes: int = Field(
        default=10737418240, ge=1, description="Volume of a gateway that keeps its own database, bytes."
    )
    environments: dict[Name, Environment] = Field(
        default={"dev": Environment(), "staging": Environment(), "prod": Environment()},
        description="Overlays that --split writes, by name.",
    )

    @field_serializer("fetch_env", when_used="json")
    def _hide(self, value: dict[str, str]) -> dict[str, str]:
        return {name: HIDDEN if is_secret_name(name) else text for name, text in value.items()}
