"""TensorRT-LLM's two eras. Up to 1.2 weights are converted and built into an engine by a Job, for one kind of GPU, one
version and one layout, and served only where these fit; newer versions serve Hugging Face weights by PyTorch.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal

from headrace.declaration.model_source import HuggingFaceSource
from headrace.domain.endpoint import EngineKind
from headrace.engines.metrics import version_key
from headrace.fleet.deploy.render.core.model import RenderNote, Severity, Workload
from headrace.fleet.deploy.render.core.object_names import object_name
from headrace.fleet.deploy.render.core.yaml_text import Noted, yaml_text
from headrace.fleet.deploy.render.kubernetes.engine_container import noted_arguments, resources_of, rights_of
from headrace.fleet.deploy.render.kubernetes.engine_pod import (
    ONLY_NODE,
    Node,
    engine_mounts,
    engine_volumes,
    fetch_container,
    fetched,
    pod_rights,
    tolerations_of,
)
from headrace.fleet.deploy.render.kubernetes.objects import (
    ENGINES_ACCOUNT,
    Cluster,
    KubeObject,
    Tree,
    kept,
    pool_selector,
    shared_labels,
)
from headrace.fleet.deploy.render.kubernetes.triton import (
    REPOSITORY,
    build_image,
    by_triton,
    free_fraction,
    is_triton,
    triton_notes,
)

Serving = Literal["pytorch", "engine", "triton"]
LAST_WITH_ENGINES = (1, 2)
"""Source: TensorRT-LLM docs/source/legacy/tensorrt-backend-removal.md: newer versions have no engines."""
SCRIPT = "trtllm_engine.py"
BUILD_DIR = PurePosixPath("/etc/headrace/build")
EXAMPLES = "/app/tensorrt_llm/examples/models/core"
"""Where the release image keeps the scripts of the model families. Source: docker/Dockerfile.multi of 1.2."""
FAMILIES = MappingProxyType(
    {"qwen": "qwen", "llama": "llama", "mistral": "llama", "mixtral": "llama", "gemma": "gemma", "phi": "phi"}
)
"""Word in a repository's name -> folder of its convert_checkpoint.py. Source: examples/models/core of 1.2."""
DEFAULT_TOKENS, DEFAULT_SEQUENCES = 8192, 256
"""Where nothing is declared. Tokens: the default of trtllm-build; sequences: our choice, its default of 2048 needs much
memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """What the script in the image is told."""

    text: str
    engine_dir: PurePosixPath


def serving_of(cluster: Cluster, workload: Workload) -> Serving:
    """Return how TensorRT-LLM serves this pool: what is declared, else what its version is for."""
    declared = cluster.pool_settings(workload).tensorrt
    if declared != "auto":
        return declared
    return "engine" if has_engines(workload) else "pytorch"


def has_engines(workload: Workload) -> bool:
    version = workload.image.engine_version
    return version is not None and version_key(version)[:2] <= LAST_WITH_ENGINES


def is_built(cluster: Cluster, workload: Workload) -> bool:
    """Whether a Job builds an engine for this pool."""
    return workload.engine is EngineKind.TENSORRT_LLM and serving_of(cluster, workload) != "pytorch"


def tensorrt_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    """Yield what does not go together."""
    key, settings = f"pools.{workload.pool}", cluster.pool_settings(workload)
    if workload.engine is not EngineKind.TENSORRT_LLM:
        if settings.tensorrt != "auto":
            yield _error(
                f"{key}.kubernetes.tensorrt", f"is for tensorrt-llm, not {workload.engine.value}", "Take it out"
            )
        return
    version = workload.image.engine_version
    if version is None and settings.tensorrt == "auto":
        yield _error(
            f"{key}.container.engine_version",
            "is needed beside image: up to 1.2 an engine is built first, newer versions serve the weights themselves",
            "Give it, or kubernetes.tensorrt",
        )
    elif settings.tensorrt in ("engine", "triton") and version is not None and not has_engines(workload):
        yield _error(
            f"{key}.kubernetes.tensorrt",
            f"is {settings.tensorrt}, but TensorRT-LLM {version} has no engines: they ended with 1.2",
            "Declare container.engine_version 1.2.1, or tensorrt: pytorch",
        )
    elif is_built(cluster, workload):
        yield from triton_notes(cluster, workload)
        if cluster.declaration.deployment.models.access == "ReadOnlyMany":
            yield _error("deployment.models.access", "is ReadOnlyMany, but an engine is built onto the volume")
        if workload.nodes == 1 and _convert_script(cluster, workload) is None:
            yield _error(
                f"{key}.kubernetes.build.convert_script",
                "is needed: the repository's name tells no model family",
                f"Such as {EXAMPLES}/qwen/convert_checkpoint.py; known: {', '.join(FAMILIES)}",
            )


def plan_of(cluster: Cluster, workload: Workload) -> BuildPlan:
    """Return what is built, named by all that it depends on."""
    pool, build = cluster.pool(workload), cluster.pool_settings(workload).build
    options, weights = pool.options, workload.weights[0]
    plan: dict[str, object] = {
        "source": weights.source_text,
        "model_dir": str(weights.path),
        "tensorrt_llm": workload.image.engine_version or "",
        "tensor": options.parallel.tensor,
        "pipeline": options.parallel.pipeline,
        "dtype": build.dtype,
        "convert_script": _convert_script(cluster, workload),
        "max_seq_len": cluster.declaration.models[pool.model].for_engine(pool.engine).context_tokens,
        "max_num_tokens": build.tokens_per_batch or options.batching.batched_tokens or DEFAULT_TOKENS,
        "max_batch_size": build.sequences or options.batching.max_sequences or DEFAULT_SEQUENCES,
        "timeout_s": build.timeout_s,
    }
    name = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:10]
    root = PurePosixPath(cluster.declaration.deployment.models.mount_path)
    engine_dir = root / "engines" / f"{object_name(workload.pool)}-{name}"
    plan["engine_dir"] = str(engine_dir)
    if is_triton(cluster, workload):  # after the name, since it changes nothing of the engine
        plan["kv_fraction"] = free_fraction(workload.args)
    return BuildPlan(text=json.dumps(plan, indent=1, sort_keys=True) + "\n", engine_dir=engine_dir)


def serving_node(cluster: Cluster, workload: Workload) -> Node:
    """Return how the pod of a built engine differs: it waits for the Job, then checks before it serves."""
    if not is_built(cluster, workload):
        return ONLY_NODE
    plan, (python, script, plan_file) = plan_of(cluster, workload), _script_words()
    mount: Tree = {"name": "build", "mountPath": str(BUILD_DIR), "readOnly": True}
    repository: Tree | None = {"name": "repository", "emptyDir": {}} if is_triton(cluster, workload) else None
    waits: Tree = {
        "name": "wait-for-engine",
        "image": Noted(workload.image.reference, workload.image.origin),
        "command": [python],
        "args": [script, "wait", "--plan", plan_file, "--timeout-s", str(_build_timeout_s(cluster, workload))],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": rights_of(cluster, workload),
        "volumeMounts": [_models_mount(cluster, is_read_only=True), mount],
    }
    return Node(
        command=[python],
        arguments=[script, "serve", "--plan", plan_file, "--", *_served_words(cluster, workload, plan)],
        init=[
            Noted(waits, "Its GPUs are taken meanwhile: apply the Job first where it needs the same ones"),
            *([] if repository is None else [_repository_container(cluster, workload, mount)]),
        ],
        mounts=[mount, *([] if repository is None else [{"name": "repository", "mountPath": REPOSITORY}])],
        volumes=[
            {"name": "build", "configMap": {"name": _config_name(workload)}},
            *([] if repository is None else [repository]),
        ],
    )


def _served_words(cluster: Cluster, workload: Workload, plan: BuildPlan) -> list[object]:
    """Return the command that serves the engine, once it is checked."""
    if is_triton(cluster, workload):
        shown = by_triton(cluster, workload)
        return [*shown.image.command, *shown.args]
    verb, model_dir, *rest = workload.args
    own = [*workload.image.command, verb, str(plan.engine_dir), "--backend", "tensorrt", "--tokenizer", model_dir]
    return [*own, *noted_arguments(cluster, workload, rest)]


def _repository_container(cluster: Cluster, workload: Workload, mount: Tree) -> Tree:
    """Return the init container that copies Triton's templates and fills them."""
    python, script, plan_file = _script_words()
    return {
        "name": "fill-repository",
        "image": Noted(workload.image.reference, workload.image.origin),
        "command": [python],
        "args": [script, "repository", "--plan", plan_file, "--folder", REPOSITORY],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": rights_of(cluster, workload),
        "volumeMounts": [
            _models_mount(cluster, is_read_only=True),
            mount,
            {"name": "repository", "mountPath": REPOSITORY},
        ],
    }


def build_objects(cluster: Cluster, workload: Workload) -> Iterator[KubeObject]:
    """Yield the Job that builds the engine, and what it is told."""
    if not is_built(cluster, workload):
        return
    plan = plan_of(cluster, workload)
    labels = {**shared_labels(), **pool_selector(workload)}
    config: Tree = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": cluster.metadata(_config_name(workload), labels),
        "data": {"plan.json": plan.text, SCRIPT: script_text()},
    }
    file = f"{object_name(workload.pool)}.yaml"
    yield KubeObject(
        file=file, tree=config, about="What is built, and the script that builds, waits, checks and serves."
    )
    job: Tree = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": cluster.metadata(_job_name(cluster, workload, plan), labels),
        "spec": {
            "backoffLimit": 2,
            "activeDeadlineSeconds": Noted(
                _build_timeout_s(cluster, workload), f"pools.{workload.pool}.kubernetes.build.timeout_s, and the fetch"
            ),
            "ttlSecondsAfterFinished": 86400,
            "template": {"metadata": {"labels": _job_labels(labels)}, "spec": _job_pod(cluster, workload)},
        },
    }
    about = (
        f"Converts and builds the engine of pool {workload.pool} on a GPU of the pool's kind, if it is not there yet.\n"
        "Its name changes with it, since a Job cannot be changed."
    )
    yield KubeObject(file=file, tree=job, about=about)


def _job_name(cluster: Cluster, workload: Workload, plan: BuildPlan) -> str:
    """A Job cannot be changed: another one has another name."""
    whole = plan.text + script_text() + yaml_text(_job_pod(cluster, workload))
    return f"{object_name(workload.pool)}-build-{hashlib.sha256(whole.encode()).hexdigest()[:10]}"


def script_text() -> str:
    """Return the script that runs in TensorRT-LLM's image."""
    return files("headrace.fleet.deploy.render.kubernetes").joinpath(SCRIPT).read_text()


def _job_pod(cluster: Cluster, workload: Workload) -> Tree:
    python, script, plan_file = _script_words()
    placement = workload.placement
    image, origin = workload.image.reference, workload.image.origin
    if is_triton(cluster, workload):
        image, origin = str(build_image(workload)), f"pools.{workload.pool}.container.engine_version"
    resources = resources_of(cluster, workload, gpus=1, gpu_origin="ranks are built one after another")
    container: Tree = {
        "name": "build",
        "image": Noted(image, origin),
        "command": [python],
        "args": [script, "build", "--plan", plan_file],
        "resources": resources,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": rights_of(cluster, workload),
        "volumeMounts": [
            Noted(_models_mount(cluster, is_read_only=False), "the engine is written beside the weights"),
            {"name": "build", "mountPath": str(BUILD_DIR), "readOnly": True},
            *(mount for mount in engine_mounts(cluster, workload) if _mount_name(mount) not in ("models", "files")),
        ],
    }
    kinds = [volume for volume in engine_volumes(cluster, workload) if _mount_name(volume) != "files"]
    return kept(
        {
            "restartPolicy": "Never",
            "serviceAccountName": ENGINES_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "runtimeClassName": placement.runtime_class,
            "nodeSelector": Noted(dict(placement.node_selector), f"pools.{workload.pool}.placement.node_selector"),
            "tolerations": tolerations_of(cluster, workload),
            "imagePullSecrets": [{"name": name} for name in cluster.settings.pull_secrets],
            "securityContext": pod_rights(cluster, workload),
            "initContainers": [fetch_container(cluster, one) for one in fetched(cluster, workload)],
            "containers": [container],
            "volumes": [*kinds, {"name": "build", "configMap": {"name": _config_name(workload)}}],
        }
    )


def _job_labels(labels: dict[str, str]) -> dict[str, str]:
    """Not the pool's label: no Service may send requests to a build."""
    return {**shared_labels(), "app.kubernetes.io/component": "build"}


def _mount_name(mount: object) -> object:
    inner = mount.value if isinstance(mount, Noted) else mount
    return inner.get("name") if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def _models_mount(cluster: Cluster, *, is_read_only: bool) -> Tree:
    mount: Tree = {"name": "models", "mountPath": cluster.declaration.deployment.models.mount_path}
    return {**mount, "readOnly": True} if is_read_only else mount


def _script_words() -> tuple[str, str, str]:
    return "python3", str(BUILD_DIR / SCRIPT), str(BUILD_DIR / "plan.json")


def _config_name(workload: Workload) -> str:
    return f"{object_name(workload.pool)}-build"


def _build_timeout_s(cluster: Cluster, workload: Workload) -> int:
    return cluster.settings.fetch_timeout_s + cluster.pool_settings(workload).build.timeout_s


def _convert_script(cluster: Cluster, workload: Workload) -> str | None:
    declared = cluster.pool_settings(workload).build.convert_script
    if declared is not None:
        return declared
    source = workload.weights[0].source
    if not isinstance(source, HuggingFaceSource):
        return None
    name = source.repository.rpartition("/")[2].lower()
    family = next((folder for word, folder in FAMILIES.items() if word in name), None)
    return None if family is None else f"{EXAMPLES}/{family}/convert_checkpoint.py"


def _error(key: str, message: str, hint: str | None = None) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=key, message=message, hint=hint)
