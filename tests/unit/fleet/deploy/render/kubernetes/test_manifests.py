"""What `headrace render kubernetes` writes: as reviewed, valid by every schema, right in what schemas do not see."""

import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.harness.kubernetes_cases import CASES, EVERYTHING, POOL
from tests.harness.manifests import Document, documents_of, problems_of, slips_of, templates_of
from tests.harness.render_cases import GGUF, GGUF_SHA256, GPU_ENGINES, REFERENCE, declaration_text, rendered_text
from tools.render_goldens import GOLDEN, iter_goldens
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.declaration.load import load_declaration
from headrace.fleet.deploy.render.folder import plan_folder, write_folder
from headrace.fleet.deploy.render.kubernetes.scaling import GATEWAY_QUEUE
from headrace.fleet.deploy.render.kubernetes.shared_objects import BASELINE_CAPABILITIES
from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.targets import Target, render
from headrace.telemetry.catalogue import METRICS

FOLDER = GOLDEN / Target.KUBERNETES.value
VALID = sorted(
    path.name for path in FOLDER.iterdir() if path.suffix == ".yaml" and not path.read_text().startswith("refused")
)
KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"


def golden(name: str) -> list[Document]:
    return documents_of((FOLDER / name).read_text())


def find(documents: list[Document], kind: str, name: str) -> Any:
    found = [one for one in documents if one["kind"] == kind and one["metadata"]["name"] == name]
    assert len(found) == 1, f"{len(found)} {kind} {name}"
    return found[0]


def pods_of(document: Document) -> list[Any]:
    """Return the pod specs within an object."""
    return [template["spec"] for template in templates_of(document)]


def rendered(tmp_path: Path, text: str, *overrides: str) -> list[Document]:
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    return documents_of(rendered_text(Target.KUBERNETES, path, overrides))


def test_what_is_rendered_is_what_was_reviewed() -> None:
    """Every case gives the committed text byte for byte, or the committed refusal."""
    wanted = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert dict(iter_goldens(Target.KUBERNETES)) == wanted, "`make goldens` writes them anew; read the diff"


@pytest.mark.parametrize("name", VALID)
def test_every_object_is_valid(name: str) -> None:
    """Core objects by Kubernetes' own schemas, oldest and newest; others by the schema of their CRD; no unknown key."""
    documents = golden(name)
    assert [problem for document in documents for problem in problems_of(document)] == []
    named = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in documents]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", VALID)
def test_nothing_is_refused_that_schemas_do_not_see(name: str) -> None:
    """Selectors select pods, names and quantities are such, mounts are distinct, no end is longer than its grace."""
    assert list(slips_of(golden(name))) == []


@pytest.mark.parametrize("name", VALID)
def test_every_pod_keeps_what_the_namespace_asks_for(name: str) -> None:
    """Pinned images, no rights that are not needed, no token of the cluster, and the level that is enforced is kept."""
    documents = golden(name)
    labels = next(one for one in documents if one["kind"] == "Namespace")["metadata"]["labels"]
    level = labels["pod-security.kubernetes.io/enforce"]
    for pod in [pod for document in documents for pod in pods_of(document)]:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.get("hostIPC") or level == "privileged"
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            image = container["image"]
            assert "@sha256:" in image or ":" in image.rpartition("/")[2], image
            assert not image.endswith(":latest")
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"]["drop"] == ["ALL"]
            is_root = not (rights.get("runAsNonRoot") or pod["securityContext"].get("runAsNonRoot"))
            assert not is_root or level != "restricted"
            added = set(rights["capabilities"].get("add", []))
            assert not added or level == "privileged" or (level == "baseline" and added <= BASELINE_CAPABILITIES)


@pytest.mark.parametrize("name", VALID)
def test_no_reference_leads_nowhere(name: str) -> None:
    """Each volume that is mounted is there, each claim and ConfigMap too, and each port that is named."""
    documents = golden(name)
    there = {(one["kind"], one["metadata"]["name"]) for one in documents}
    for pod in [pod for document in documents for pod in pods_of(document)]:
        volumes = {volume["name"]: volume for volume in pod["volumes"]} if "volumes" in pod else {"state": {}}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert mounted <= set(volumes)
            ports = {port["name"] for port in container.get("ports", [])}
            asked = {
                container[probe]["httpGet"]["port"]
                for probe in container
                if "httpGet" in str(container[probe]) and probe.endswith("Probe")
            }
            assert asked <= ports
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "persistentVolumeClaim" in volume and name not in ("read-only-volume.yaml",) and "reference" not in name:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there


PROBES = {
    "vllm": ("/health", "/health"),
    "sglang": ("/ready", "/ping"),
    "tensorrt-llm": ("/health", "/health"),
    "llamacpp": ("/health", "/health"),
}
"""ENGINES.md section 3: what says that requests may be sent, and what only fails where a restart is the remedy."""


@pytest.mark.parametrize("engine", PROBES)
def test_probes_ask_what_the_engine_answers_without_a_scheduler_slot(engine: str) -> None:
    """Ready and alive are asked on their own paths, and never by generating a token."""
    engine_pod = pods_of(find(golden(f"{engine}-single.yaml"), "Deployment", "chat"))[0]["containers"][0]
    ready, alive = PROBES[engine]
    assert engine_pod["startupProbe"]["httpGet"]["path"] == ready
    assert engine_pod["readinessProbe"]["httpGet"]["path"] == ready
    assert engine_pod["livenessProbe"]["httpGet"]["path"] == alive
    assert "generate" not in str(engine_pod)


def test_a_busy_engine_is_never_killed(tmp_path: Path) -> None:
    """Five minutes without a single answer, each waited for half a minute, before a restart; loading is not counted."""
    pod = pods_of(find(golden("vllm-single.yaml"), "Deployment", "chat"))[0]["containers"][0]
    live = pod["livenessProbe"]
    assert live["failureThreshold"] * live["periodSeconds"] >= 300
    assert live["timeoutSeconds"] >= 30
    start = pod["startupProbe"]
    assert start["initialDelaySeconds"] + start["failureThreshold"] * start["periodSeconds"] >= 600


@pytest.mark.parametrize(
    ("read_bytes_per_s", "delay_s", "period_s"), [("1e9", 53, 5), ("1e8", 125, 12), ("1e10", 45, 4), ("2e7", 300, 30)]
)
def test_the_start_is_asked_about_as_long_as_loading_takes(
    tmp_path: Path, read_bytes_per_s: str, delay_s: int, period_s: int
) -> None:
    """16 GB on a slow disk are asked about later and less often, within the bound of 600 s; on a fast one sooner."""
    overrides = (f"pools.main.placement.read_bytes_per_s={read_bytes_per_s}", "pools.main.engine=vllm")
    documents = rendered(tmp_path, POOL, *overrides)
    start = pods_of(find(documents, "Deployment", "main"))[0]["containers"][0]["startupProbe"]
    assert (start["initialDelaySeconds"], start["periodSeconds"]) == (delay_s, period_s)
    assert 600 <= delay_s + start["failureThreshold"] * period_s < 600 + period_s


def test_a_pod_drains_before_it_is_killed(tmp_path: Path) -> None:
    """First the gateway stops sending, then the engine has its whole drain bound, then comes the kill."""
    documents = rendered(tmp_path, POOL, "pools.main.engine=vllm", "pools.main.stop_s=100")
    pod = pods_of(find(documents, "Deployment", "main"))[0]
    lead_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert lead_s > 10  # gateway.discover_interval_s
    assert pod["terminationGracePeriodSeconds"] == lead_s + 100
    arguments = pod["containers"][0]["args"]
    assert int(arguments[arguments.index("--shutdown-timeout") + 1]) < 100


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_nodes_behind_the_first_outlive_it(engine: str) -> None:
    """The first node's streams need the others until they have ended."""
    group = find(golden(f"{engine}-multi-node.yaml"), "LeaderWorkerSet", "chat-group")["spec"]["leaderWorkerTemplate"]
    leader, worker = group["leaderTemplate"]["spec"], group["workerTemplate"]["spec"]
    held_s = worker["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert held_s >= leader["terminationGracePeriodSeconds"]
    assert worker["terminationGracePeriodSeconds"] > held_s
    assert "readinessProbe" in leader["containers"][0]
    assert not any("Probe" in key for key in worker["containers"][0])


def test_the_name_of_a_group_is_left_for_its_own_service() -> None:
    """LeaderWorkerSet makes a headless Service of its name, by which nodes meet, only where none is there."""
    for name in ("vllm-multi-node.yaml", "everything.yaml"):
        groups = {one["metadata"]["name"] for one in golden(name) if one["kind"] == "LeaderWorkerSet"}
        assert groups
        assert not groups & {one["metadata"]["name"] for one in golden(name) if one["kind"] == "Service"}


def test_only_first_nodes_get_requests() -> None:
    """Of a replica over several nodes the gateway sees the one that serves."""
    for kind, label in (
        ("vllm-multi-node", "leaderworkerset.sigs.k8s.io/worker-index"),
        ("stateful-set-vllm", "apps.kubernetes.io/pod-index"),
    ):
        name = "chat" if kind == "vllm-multi-node" else "main"
        service = find(golden(f"{kind}.yaml"), "Service", f"{name}-pods")
        assert service["spec"]["selector"][label] == "0"
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is False


def test_nodes_of_stateful_sets_find_each_other_before_they_are_ready() -> None:
    """Their own Service shows pods that are not ready, and they know the first one's name and their number."""
    documents = golden("stateful-set-vllm.yaml")
    assert find(documents, "Service", "main-nodes")["spec"]["publishNotReadyAddresses"] is True
    for replica in ("0", "1"):
        group = find(documents, "StatefulSet", f"main-{replica}")
        container = pods_of(group)[0]["containers"][0]
        assert group["spec"]["replicas"] == 2
        assert f"main-{replica}-0.main-nodes" in container["args"]
        assert container["args"][container["args"].index("--node-rank") + 1] == "$(HEADRACE_NODE)"


@pytest.mark.parametrize(("node", "said"), [("0", "serve model"), ("1", "serve model --headless")])
def test_the_shell_of_a_node_knows_its_number(node: str, said: str) -> None:
    """The words around vLLM's command, run for real: all nodes but the first have no HTTP server."""
    container = pods_of(find(golden("stateful-set-vllm.yaml"), "StatefulSet", "main-0"))[0]["containers"][0]
    assert container["args"][:2] == ["vllm", "serve"]
    command = [*container["command"], "echo", "serve", "model"]
    done = subprocess.run(
        command, env={"HEADRACE_NODE": node, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == said
    probe = container["readinessProbe"]["exec"]["command"]
    assert subprocess.run([*probe[:4], "false"], env={"HEADRACE_NODE": node}, check=False).returncode == (node == "0")


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_the_reference_case(engine: str) -> None:
    """Qwen2.5-32B on four GPUs: what was asked for reaches the pods of all three engines."""
    pod = pods_of(find(golden(f"{engine}-reference.yaml"), "Deployment", "main"))[0]
    container = pod["containers"][0]
    flags = {
        "vllm": {"--tensor-parallel-size": "4", "--max-model-len": "32768", "--gpu-memory-utilization": "0.85"},
        "sglang": {"--tp-size": "4", "--context-length": "32768", "--mem-fraction-static": "0.8"},
        "tensorrt-llm": {"--tp_size": "4", "--max_seq_len": "32768", "--kv_cache_free_gpu_memory_fraction": "0.802"},
    }[engine] | {"--port": "30000"}
    for flag, value in flags.items():
        assert container["args"][container["args"].index(flag) + 1] == value
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert container["resources"]["requests"]["nvidia.com/gpu"] == 4
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert pod["terminationGracePeriodSeconds"] == 120
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]
    fetch = pod["initContainers"][0]
    assert "hf:Qwen/Qwen2.5-32B-Instruct@5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd" in fetch["args"]
    assert fetch["volumeMounts"] == [{"name": "models", "mountPath": "/models"}]


def test_every_declared_flag_says_where_it_comes_from(tmp_path: Path) -> None:
    """Above a flag stands the key of the declaration that made it."""
    request, _ = make_request(REFERENCE, environ={})
    text = next(file.text for file in render(Target.KUBERNETES, request).files if file.path == "base/main.yaml")
    for key, flag in (("context_tokens", "--max-model-len"), ("memory.fraction", "--gpu-memory-utilization")):
        assert re.search(rf"# \S*{key}\n +- {flag}\n", text)


@pytest.mark.parametrize("name", VALID)
def test_the_gateway_can_load_what_it_is_given(name: str, tmp_path: Path) -> None:
    """Its ConfigMap is a declaration without errors, with every pool found by the name of a headless Service."""
    documents = golden(name)
    path = tmp_path / "headrace.yaml"
    path.write_text(find(documents, "ConfigMap", "gateway")["data"]["headrace.yaml"])
    environ = {"HEADRACE_POSTGRES_PASSWORD": "x"}
    declaration = load_declaration(path, environ=environ, is_elsewhere=True).declaration
    headless = {one["metadata"]["name"] for one in documents if one.get("spec", {}).get("clusterIP") == "None"}
    for pool in declaration.pools.values():
        assert pool.discover == "dns"
        host = pool.endpoints[0].removeprefix("http://").partition(":")[0]
        assert host in headless


def test_secrets_are_references(tmp_path: Path) -> None:
    """No value of the environment is in the objects, only the name of the Secret's key."""
    path = tmp_path / "headrace.yaml"
    path.write_text(EVERYTHING)
    request, _ = make_request(path, environ={"HUB_TOKEN": "hf-canary", "HEADRACE_POSTGRES_PASSWORD": "pg-canary"})
    made = render(Target.KUBERNETES, request)
    assert made.errors == ()
    assert not any("canary" in file.text for file in made.files)
    assert not any(one["kind"] == "Secret" for one in golden("everything.yaml"))
    env = pods_of(find(golden("everything.yaml"), "Deployment", "chat"))[0]["containers"][0]["env"]
    assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "headrace-secrets", "key": "HUB_TOKEN"}}} in env


def test_only_the_gateway_reaches_an_engine() -> None:
    """Each pool has a policy that selects all its pods; who scrapes metrics is let in where declared, and no other."""
    for name in ("vllm-single.yaml", "everything.yaml"):
        documents = golden(name)
        for pool in ("chat",):
            policy = find(documents, "NetworkPolicy", pool)["spec"]
            assert policy["podSelector"] == {"matchLabels": {"headrace/pool": pool}}
            sources = [source for rule in policy["ingress"] for source in rule["from"]]
            gateway = {"app.kubernetes.io/component": "gateway", "app.kubernetes.io/part-of": "headrace"}
            assert sources[0] == {"podSelector": {"matchLabels": gateway}}
            assert len(sources) == (1 if name == "vllm-single.yaml" else 2)


def test_prefill_and_decode_reach_each_other() -> None:
    """Pools of one model between which KV caches travel are let through, on the ports that their library chooses."""
    documents = golden("vllm-disaggregated.yaml")
    for pool in ("chat-prefill", "chat-decode"):
        rules = find(documents, "NetworkPolicy", pool)["spec"]["ingress"]
        assert {"from": [{"podSelector": {"matchLabels": {"headrace/peers": "chat-8b"}}}]} in rules
        labels = find(documents, "Deployment", pool)["spec"]["template"]["metadata"]["labels"]
        assert labels["headrace/peers"] == "chat-8b"


def test_fewer_replicas_come_slowly() -> None:
    """A scaler waits until fewer have been enough, and takes one at a time with its drain between two."""
    behavior = find(golden("everything.yaml"), "ScaledObject", "chat")["spec"]["advanced"]
    down = behavior["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert down["stabilizationWindowSeconds"] >= 300
    grace_s = pods_of(find(golden("everything.yaml"), "Deployment", "chat"))[0]["terminationGracePeriodSeconds"]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": grace_s}]
    assert "replicas" not in find(golden("everything.yaml"), "Deployment", "chat")["spec"]


@pytest.mark.parametrize(
    ("engine", "names"),
    [
        ("vllm", ["vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]),
        ("sglang", ["sglang:num_queue_reqs", "sglang:token_usage"]),
        ("tensorrt-llm", ["trtllm_num_requests_waiting", "trtllm_kv_cache_utilization"]),
        ("llamacpp", ["llamacpp:requests_deferred"]),
    ],
)
def test_scalers_ask_for_metrics_that_the_engine_has(tmp_path: Path, engine: str, names: list[str]) -> None:
    """Queue and KV cache by the names that this version of the engine gives them."""
    overrides = (f"pools.main.engine={engine}", "pools.main.kubernetes.autoscale={maximum: 4, by: hpa}")
    if engine == "llamacpp":
        overrides += (f'models.qwen-8b.source="{GGUF}"', f"models.qwen-8b.sha256={GGUF_SHA256}")
    scaler = find(rendered(tmp_path, POOL, *overrides), "HorizontalPodAutoscaler", "main")
    gateway, *engines = scaler["spec"]["metrics"]
    assert [one["pods"]["metric"]["name"] for one in engines] == names
    assert gateway["external"]["metric"] == {
        "name": "headrace_queue_waiting_requests",
        "selector": {"matchLabels": {"model": "qwen-8b"}},
    }


def test_a_model_that_is_no_label_is_not_asked_for(tmp_path: Path) -> None:
    """A HorizontalPodAutoscaler selects by labels: for other names it goes by the engines alone."""
    path = tmp_path / "headrace.yaml"
    path.write_text(POOL.replace("qwen-8b:", "acme/qwen-8b:").replace("model: qwen-8b", "model: acme/qwen-8b"))
    overrides = ("pools.main.engine=vllm", "pools.main.kubernetes.autoscale={maximum: 4, by: hpa}")
    request, _ = make_request(path, environ={}, overrides=overrides)
    made = render(Target.KUBERNETES, request)
    scaler = find(documents_of("---\n".join(file.text for file in made.files)), "HorizontalPodAutoscaler", "main")
    assert {one["type"] for one in scaler["spec"]["metrics"]} == {"Pods"}
    assert any("acme/qwen-8b is no value of a label" in str(note) for note in made.notes)
    assert list(problems_of(scaler)) == []


def test_scalers_ask_for_a_queue_that_the_gateway_has() -> None:
    """The gateway's own metric is in the catalogue, with the label by which it is asked for."""
    spec = next(one for one in METRICS if one.name == GATEWAY_QUEUE)
    assert "model" in spec.labels


def test_blue_and_green_stand_side_by_side() -> None:
    """The new set has a name and a selector of its own; requests go where `serve` says."""
    documents = golden("blue-green.yaml")
    green = find(documents, "Deployment", "main-green")["spec"]
    assert green["selector"]["matchLabels"] == {"headrace/pool": "main", "headrace/colour": "green"}
    assert find(documents, "Service", "main-pods")["spec"]["selector"]["headrace/colour"] == "blue"


def test_up_to_1_2_an_engine_is_built_first() -> None:
    """A Job converts and builds, the pods wait for it and check it; newer versions serve the weights as they are."""
    documents = golden("tensorrt-engine.yaml")
    job = next(one for one in documents if one["kind"] == "Job")
    assert pods_of(job)[0]["containers"][0]["args"][1] == "build"
    pod = pods_of(find(documents, "Deployment", "main"))[0]
    assert [one["name"] for one in pod["initContainers"]] == ["fetch-model", "wait-for-engine"]
    words = pod["containers"][0]["args"]
    assert words[1:6] == ["serve", "--plan", "/etc/headrace/build/plan.json", "--", "trtllm-serve"]
    assert words[words.index("--backend") + 1] == "tensorrt"
    for newer in ("tensorrt-llm-single.yaml", "tensorrt-pytorch-1.2.yaml"):
        assert not any(one["kind"] == "Job" for one in golden(newer))


def test_triton_serves_an_engine_that_is_checked() -> None:
    """TensorRT-LLM's own image builds; Triton's repository is filled, and the gateway speaks OpenAI to it."""
    documents = golden("tensorrt-triton.yaml")
    job = next(one for one in documents if one["kind"] == "Job")
    assert pods_of(job)[0]["containers"][0]["image"] == "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
    pod = pods_of(find(documents, "Deployment", "main"))[0]
    assert [one["name"] for one in pod["initContainers"]] == ["fetch-model", "wait-for-engine", "fill-repository"]
    words = pod["containers"][0]["args"]
    assert words[words.index("--") + 1 :][:2] == ["python3", "/opt/tritonserver/python/openai/openai_frontend/main.py"]
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    gateway = yaml.safe_load(find(documents, "ConfigMap", "gateway")["data"]["headrace.yaml"])
    assert gateway["pools"]["main"]["engine"] == "openai"
    assert gateway["pools"]["main"]["served_model"] == "tensorrt_llm_bls"
    assert find(documents, "PodMonitor", "main")["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"


def test_a_changed_engine_is_another_job(tmp_path: Path) -> None:
    """A Job cannot be changed: what is built differently has another name and another folder."""
    text = CASES["tensorrt-engine"]
    names = [
        next(one["metadata"]["name"] for one in rendered(tmp_path, text, *overrides) if one["kind"] == "Job")
        for overrides in (
            (),
            ("pools.main.stop_s=50",),
            ("models.qwen-8b.context_tokens=4096",),
            ("pools.main.placement.node_selector={gpu: h100}",),
        )
    ]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_changed_files_start_new_pods(tmp_path: Path) -> None:
    """A ConfigMap that changes under running pods is noticed by none: the template names its contents."""
    digests = {
        find(rendered(tmp_path, POOL, "pools.main.engine=vllm", *more), "Deployment", "gateway")["spec"]["template"][
            "metadata"
        ]["annotations"]["headrace/files-sha256"]
        for more in ((), ("gateway.drain_s=45",))
    }
    assert len(digests) == 2


@pytest.mark.parametrize("text", [EVERYTHING, declaration_text("vllm", "multi-node")], ids=["everything", "multi-node"])
def test_kustomize_builds_every_overlay(tmp_path: Path, text: str) -> None:
    """`kubectl kustomize` makes valid objects of base and overlays, all in the overlay's namespace."""
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    request, _ = make_request(path, environ={})
    folder = tmp_path / "deploy"
    write_folder(folder, plan_folder(folder, render(Target.KUBERNETES, request).files), is_forced=False)
    plain = documents_of(rendered_text(Target.KUBERNETES, path))
    for kustomization in [folder / "base", *sorted((folder / "overlays").iterdir())]:
        done = subprocess.run([KUBECTL, "kustomize", kustomization], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        built = documents_of(done.stdout)
        assert {(one["kind"], one["metadata"]["name"]) for one in built if one["kind"] != "Namespace"} == {
            (one["kind"], one["metadata"]["name"]) for one in plain if one["kind"] != "Namespace"
        }
        overlay = yaml.safe_load((kustomization / "kustomization.yaml").read_text())
        if "namespace" in overlay:
            assert {one["metadata"].get("namespace", overlay["namespace"]) for one in built} == {overlay["namespace"]}
            assert find(built, "Namespace", overlay["namespace"])
            assert not any(f'namespace="{name}"' in done.stdout for name in {"llm", "llm-dev"} - {overlay["namespace"]})
        assert [problem for one in built for problem in problems_of(one, ("1.37",))] == []


def test_the_command_writes_a_stream_or_a_folder(tmp_path: Path) -> None:
    """Stdout holds objects alone, in the namespace asked for; a folder has overlays, and a second look no change."""
    path = tmp_path / "headrace.yaml"
    path.write_text(POOL + "    engine: vllm\n")
    words = ["render", "kubernetes", "--config", str(path), "--namespace", "team-a", "--set", "pools.main.stop_s=45"]
    stream = CliRunner().invoke(app, words)
    assert stream.exit_code == 0, stream.output
    documents = documents_of(stream.stdout)
    assert {one["metadata"].get("namespace", "team-a") for one in documents} == {"team-a"}
    assert pods_of(find(documents, "Deployment", "main"))[0]["terminationGracePeriodSeconds"] == 17 + 45
    folder = tmp_path / "deploy"
    assert CliRunner().invoke(app, [*words, "--split", str(folder)]).exit_code == 0
    assert sorted(one.name for one in (folder / "overlays").iterdir()) == ["dev", "prod", "staging"]
    assert CliRunner().invoke(app, [*words, "--split", str(folder), "--diff"]).exit_code == 0


def test_one_pool_alone_has_no_gateway(tmp_path: Path) -> None:
    """--pool writes the engines of one pool for a gateway that is there already."""
    path = tmp_path / "headrace.yaml"
    path.write_text(EVERYTHING)
    done = CliRunner().invoke(app, ["render", "kubernetes", "--config", str(path), "--pool", "tiny"])
    kinds = {(one["kind"], one["metadata"]["name"]) for one in documents_of(done.stdout)}
    assert ("Deployment", "tiny") in kinds
    assert not kinds & {("Deployment", "gateway"), ("Deployment", "chat"), ("StatefulSet", "redis")}


def test_an_overlay_changes_what_its_environment_says(tmp_path: Path) -> None:
    """Replicas of a pool, of gateways that follow their load, and the namespace in a scaler's query."""
    path = tmp_path / "headrace.yaml"
    path.write_text(EVERYTHING)
    request, _ = make_request(path, environ={})
    folder = tmp_path / "deploy"
    write_folder(folder, plan_folder(folder, render(Target.KUBERNETES, request).files), is_forced=False)
    built = {}
    for name in ("dev", "prod"):
        words = [KUBECTL, "kustomize", folder / "overlays" / name]
        built[name] = documents_of(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert find(built["dev"], "Deployment", "tiny")["spec"]["replicas"] == 2
    assert find(built["prod"], "Deployment", "tiny")["spec"]["replicas"] == 1
    assert find(built["prod"], "HorizontalPodAutoscaler", "gateway")["spec"]["minReplicas"] == 3
    query = find(built["dev"], "ScaledObject", "chat")["spec"]["triggers"][0]["metadata"]["query"]
    assert 'namespace="llm-dev"' in query
