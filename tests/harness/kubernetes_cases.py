"""More declarations for tests of `headrace render kubernetes`: what the common cases do not reach."""

from collections.abc import Iterator
from pathlib import Path

from tests.harness.render_cases import GGUF, GGUF_SHA256, HUB, rendered_text

from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.targets import Target, render

EVERYTHING = f"""\
version: 1
gateway:
  drain_s: 60
  tls: {{certificate: /etc/certs/tls.crt, key: /etc/certs/tls.key}}
models:
  chat-8b:
    source: {HUB}
    context_tokens: 8192
    weight_bytes: 16000000000
    chat_template: "{{{{ messages }}}}"
  big:
    source: {HUB.replace("chat-8b", "big")}
    context_tokens: 32768
    weight_bytes: 400000000000
  tiny:
    source: "{GGUF}"
    sha256: {GGUF_SHA256}
    weight_bytes: 5000000000
pools:
  chat:
    model: chat-8b
    engine: vllm
    stop_s: 90
    placement: {{replicas: 2, runtime_class: nvidia, node_selector: {{gpu: h100}}, read_bytes_per_s: 500000000}}
    runtime: {{env: {{HF_TOKEN: "${{env:HUB_TOKEN}}", NCCL_DEBUG: WARN}}}}
    kubernetes:
      strategy: rolling
      cpus: 7.5
      memory_bytes: 68719476736
      tolerations: [{{key: gpu, operator: Equal, value: h100, effect: NoSchedule}}]
      autoscale: {{minimum: 2, maximum: 8}}
  big:
    model: big
    engine: sglang
    port: 31000
    parallel: {{tensor: 8, pipeline: 2}}
    placement: {{replicas: 2, gpus_per_node: 8}}
    kubernetes:
      resources: {{rdma/ib: 1}}
      capabilities: [IPC_LOCK]
      autoscale: {{maximum: 4, by: hpa, waiting: 1.5, settle_s: 900}}
  tiny:
    model: tiny
    engine: llamacpp
    threads: 4
    placement: {{replicas: 1}}
deployment:
  namespace: llm
  models: {{storage_class: shared}}
  gateway: {{image: "registry.example.com/headrace:1.0.0", replicas: 2}}
  redis: {{image: "docker.io/valkey/valkey:9.0.0"}}
  postgres: {{image: "docker.io/library/postgres:18.0"}}
  kubernetes:
    secret: headrace-secrets
    pull_secrets: [registry]
    fetch_env: {{HF_ENDPOINT: https://hub.example.com, HTTPS_PROXY: "${{env:PROXY_URL}}"}}
    pod_monitors: true
    metrics_from: {{kubernetes.io/metadata.name: monitoring}}
    prometheus: http://prometheus.monitoring:9090
    gateway_maximum: 6
    environments:
      dev: {{replicas: {{tiny: 2}}}}
      prod: {{namespace: llm, gateway_replicas: 3}}
"""

POOL = f"""\
version: 1
models:
  qwen-8b:
    source: {HUB.replace("chat-8b", "qwen-8b")}
    context_tokens: 8192
    weight_bytes: 16000000000
pools:
  main:
    model: qwen-8b
    port: 30000
"""

CASES = {
    "everything": EVERYTHING,
    "blue-green": POOL + "    engine: vllm\n    kubernetes: {strategy: blue-green, colour: green, serve: blue}\n",
    "stateful-set-vllm": POOL
    + "    engine: vllm\n    parallel: {tensor: 8, pipeline: 2}\n"
    + "    placement: {replicas: 2, gpus_per_node: 8}\n    kubernetes: {several_nodes: stateful-set}\n",
    "stateful-set-sglang": POOL
    + "    engine: sglang\n    parallel: {tensor: 16}\n"
    + "    placement: {gpus_per_node: 8}\n    kubernetes: {several_nodes: stateful-set}\n",
    "tensorrt-engine": POOL
    + "    engine: tensorrt-llm\n    parallel: {tensor: 4}\n    container: {engine_version: 1.2.1}\n",
    "tensorrt-pytorch-1.2": POOL
    + "    engine: tensorrt-llm\n    container: {engine_version: 1.2.1}\n    kubernetes: {tensorrt: pytorch}\n",
    "tensorrt-triton": POOL
    + "    engine: tensorrt-llm\n"
    + "    memory: {fraction: 0.8, of: free}\n"
    + "    container: {engine_version: 1.2.1, image: 'nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3'}\n"
    + "    kubernetes: {tensorrt: triton}\n"
    + "deployment: {kubernetes: {pod_monitors: true}}\n",
    "tensorrt-mpi": POOL
    + "    engine: tensorrt-llm\n    parallel: {tensor: 8, pipeline: 2}\n"
    + "    placement: {replicas: 2, gpus_per_node: 8}\n"
    + "    container: {engine_version: 1.3.0rc6, image: 'registry.example.com/trtllm-ssh:1.3.0rc6'}\n"
    + "    kubernetes: {mpi_keys: mpi-keys}\n",
    "read-only-volume": POOL + "    engine: vllm\ndeployment: {models: {claim: weights, access: ReadOnlyMany}}\n",
}
"""Name -> declaration."""

REFUSED = {
    "a moving revision": ("models.qwen-8b.source=hf:acme/qwen-8b@main",),
    "weights of unknown size": ("models.qwen-8b.weight_bytes=null",),
    "gateways without a database": ("deployment.gateway.replicas=3",),
    "more gateways by load without a database": ("deployment.kubernetes.gateway_maximum=3",),
    "an environment with gateways without a database": (
        "deployment.kubernetes.environments={prod: {gateway_replicas: 2}}",
    ),
    "a grace that leaves no drain": ("pools.main.kubernetes.grace_s=20",),
    "autoscale without Prometheus": ("pools.main.kubernetes.autoscale={maximum: 4}",),
    "autoscale without metrics": (
        "pools.main.kubernetes.autoscale={maximum: 4, by: hpa}",
        "pools.main.engine=sglang",
        "pools.main.telemetry.metrics=false",
    ),
    "autoscale where an environment fixes the number": (
        "pools.main.kubernetes.autoscale={maximum: 4, by: hpa}",
        "deployment.kubernetes.environments={dev: {replicas: {main: 1}}}",
    ),
    "an environment with a pool that is not there": (
        "deployment.kubernetes.environments={dev: {replicas: {mian: 1}}}",
    ),
    "rolling updates of several nodes": (
        "pools.main.parallel.tensor=16",
        "pools.main.placement.gpus_per_node=8",
        "pools.main.kubernetes.strategy=rolling",
    ),
    "TensorRT-LLM over several nodes": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.parallel.tensor=16",
        "pools.main.placement.gpus_per_node=8",
    ),
    "TensorRT-LLM over several nodes, in another way": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.parallel.tensor=16",
        "pools.main.placement.gpus_per_node=8",
        "pools.main.container={engine_version: 1.2.1, image: 'registry.example.com/trtllm-ssh:1.2.1'}",
        "pools.main.kubernetes={mpi_keys: mpi, several_nodes: stateful-set, tensorrt: engine}",
    ),
    "an engine of a version that has none": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container.engine_version=1.3.0rc6",
        "pools.main.kubernetes.tensorrt=engine",
    ),
    "an image of unknown version": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container.image=registry.example.com/trtllm:mine",
    ),
    "an engine of an unknown family": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container.engine_version=1.2.1",
        "models.qwen-8b.source=hf:acme/nova-8b@0123456789abcdef0123456789abcdef01234567",
    ),
    "an engine built onto a volume that cannot be written": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container.engine_version=1.2.1",
        "deployment.models.access=ReadOnlyMany",
    ),
    "Triton without its image": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container.engine_version=1.2.1",
        "pools.main.kubernetes.tensorrt=triton",
    ),
    "Triton on several GPUs, with what it lacks": (
        "pools.main.engine=tensorrt-llm",
        "pools.main.container={engine_version: 1.2.1, image: 'nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3'}",
        "pools.main.kubernetes.tensorrt=triton",
        "pools.main.parallel.tensor=2",
        "pools.main.parsers.tool=qwen3",
        "pools.main.prefix_cache.enabled=true",
    ),
    "TensorRT for another engine": ("pools.main.kubernetes.tensorrt=pytorch",),
    "nodes that are not equal": ("pools.main.parallel.tensor=12", "pools.main.placement.gpus_per_node=8"),
    "an image that can be another tomorrow": ("pools.main.container.image=vllm/vllm-openai:latest",),
    "a colour without blue-green": ("pools.main.kubernetes.serve=green",),
}
"""What is refused -> how POOL on vLLM is changed for it."""

ONE_MORE = "    engine: vllm\n  {name}: {{model: qwen-8b, engine: vllm, placement: {{replicas: 1}}}}\n"
MEETING = {
    "pools with one name": POOL + ONE_MORE.format(name="Main"),
    "pools whose objects meet": POOL + ONE_MORE.format(name="main-pods"),
    "a pool that no Service can be named after": POOL + ONE_MORE.format(name="8b"),
    "a pool named as a group's own Service": POOL
    + ONE_MORE.format(name="main-group").replace(
        "engine: vllm\n", "engine: vllm\n    parallel: {tensor: 16}\n    placement: {gpus_per_node: 8}\n", 1
    ),
    "a pool named as the gateway": POOL + ONE_MORE.format(name="gateway"),
}
"""What is refused -> the declaration."""


def iter_kubernetes_goldens(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of the goldens beside those of all targets."""
    path = folder / "headrace.yaml"
    for name, text in CASES.items():
        path.write_text(text)
        yield f"{name}.yaml", rendered_text(Target.KUBERNETES, path)
    path.write_text(EVERYTHING)
    request, _ = make_request(path, environ={})
    files = [file for file in render(Target.KUBERNETES, request).files if file.is_only_split]
    yield "everything-kustomize.txt", "\n".join(f"# ---- {file.path}\n{file.text}" for file in files)
    refusals = []
    for what, text in MEETING.items():
        path.write_text(text)
        refusals.append(f"# {what}\n{rendered_text(Target.KUBERNETES, path)}")
    path.write_text(POOL + "    engine: vllm\n")
    refusals += [f"# {what}\n{rendered_text(Target.KUBERNETES, path, changes)}" for what, changes in REFUSED.items()]
    yield "refusals.txt", "\n".join(refusals)
