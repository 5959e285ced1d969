"""Judges rendered Kubernetes objects: core kinds by Kubernetes' own schemas, others by their CRDs' (tests/fixtures)."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import yaml

CRDS = Path(__file__).parents[1] / "fixtures" / "crds"
VERSIONS = ("1.31", "1.37")
"""The oldest that knows all we write (preStop sleep, pod-index), and the newest with a schema."""
Document = dict[str, Any]

kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
"""It reads megabytes of schema for each object otherwise."""


def documents_of(text: str) -> list[Document]:
    """Return the objects of a stream, each whole and in one place."""
    return [document for document in yaml.load_all(text, Loader=StrictLoader) if document is not None]


class StrictLoader(yaml.CSafeLoader):
    """YAML in which no key stands twice, as Kubernetes reads it."""


def _mapping(loader: StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key twice in {keys}"
    return {loader.construct_object(key): loader.construct_object(value, deep=True) for key, value in node.value}


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def problems_of(document: Document, versions: tuple[str, ...] = VERSIONS) -> Iterator[str]:
    """Yield what the schemas say against an object."""
    name = f"{document['kind']} {document['metadata']['name']}"
    crd = _crds().get((document["apiVersion"], document["kind"]))
    if crd is not None:
        for error in crd.iter_errors(document):
            yield f"{name}: {error.json_path}: {error.message}"
        for template in _templates(document):
            yield from problems_of(template, versions)
        return
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{name} ({version}): {error.path}: {error.message}"


@cache
def _crds() -> dict[tuple[str, str], jsonschema.Draft7Validator]:
    found = {}
    for path in CRDS.glob("*.json"):
        crd = json.loads(path.read_text())
        found[crd["apiVersion"], crd["kind"]] = jsonschema.Draft7Validator(_closed(crd["openAPIV3Schema"]))
    return found


def _closed(schema: Any) -> Any:
    """Refuse unknown keys, which an API server would drop in silence."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object" and closed["properties"]:
        closed.setdefault("additionalProperties", False)
        if "metadata" in closed["properties"] and "kind" in closed["properties"]:
            closed["properties"] = {**closed["properties"], "metadata": {"type": "object"}}
    return closed


def _templates(document: Document) -> Iterator[Document]:
    """Yield the pod templates within a LeaderWorkerSet, as Deployments, which have a schema."""
    for key, template in document.get("spec", {}).get("leaderWorkerTemplate", {}).items():
        if key.endswith("Template"):
            labels = template["metadata"]["labels"]
            spec = {"selector": {"matchLabels": labels}, "template": template}
            metadata = {"name": f"{document['metadata']['name']}-{key.lower()}"}
            yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
SERVICE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
POD_LABELS_OF_OTHERS = ("leaderworkerset.sigs.k8s.io/", "apps.kubernetes.io/")
"""Put on pods by their controllers."""


def slips_of(documents: list[Document]) -> Iterator[str]:
    """Yield what an API server or a kubelet refuses beyond the schemas, and selectors that select nothing."""
    templates = [template for document in documents for template in templates_of(document)]
    names = {(one["kind"], one["metadata"]["name"]) for one in documents}
    for document in documents:
        at = f"{document['kind']} {document['metadata']['name']}"
        for value in document["metadata"].get("labels", {}).values():
            if not LABEL_VALUE.fullmatch(value):
                yield f"{at}: label {value}"
        yield from (f"{at}: {slip}" for slip in _selector_slips(document, templates))
        if document["kind"] in ("Service", "LeaderWorkerSet") and not SERVICE_NAME.fullmatch(
            document["metadata"]["name"]
        ):
            yield f"{at}: its name"
        if document["kind"] == "StatefulSet" and ("Service", document["spec"]["serviceName"]) not in names:
            yield f"{at}: serviceName"
        for template in templates_of(document):
            yield from (f"{at}: {slip}" for slip in _pod_slips(template["spec"]))


def templates_of(document: Document) -> list[Document]:
    """Return the pod templates of an object."""
    spec = document.get("spec", {})
    found = [spec.get("template"), *spec.get("leaderWorkerTemplate", {}).values()]
    return [one for one in found if isinstance(one, dict) and "spec" in one]


def _selector_slips(document: Document, templates: list[Document]) -> Iterator[str]:
    spec = document.get("spec", {})
    selector = spec.get("selector", spec.get("podSelector"))
    if selector is None or document["kind"] in ("PersistentVolumeClaim",):
        return
    wanted = selector.get("matchLabels", selector)
    own = {key: value for key, value in wanted.items() if not key.startswith(POD_LABELS_OF_OTHERS)}
    where = templates_of(document) or templates
    if not any(own.items() <= one["metadata"]["labels"].items() for one in where):
        served_elsewhere = {"headrace/colour"} & set(own)  # the other colour is not in this rendering
        if not served_elsewhere:
            yield f"selects nothing: {own}"


def _pod_slips(pod: Document) -> Iterator[str]:
    volumes = [volume["name"] for volume in pod.get("volumes", [])]
    if len(volumes) != len(set(volumes)):
        yield f"volumes twice: {volumes}"
    grace_s = pod.get("terminationGracePeriodSeconds", 30)
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        if len(paths) != len(set(paths)):
            yield f"{container['name']}: mounted twice: {paths}"
        ports = [port["name"] for port in container.get("ports", [])]
        if len(ports) != len(set(ports)) or not all(PORT_NAME.fullmatch(port) for port in ports):
            yield f"{container['name']}: ports {ports}"
        sleep_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 1)
        if not 0 < sleep_s <= grace_s:
            yield f"{container['name']}: preStop sleeps {sleep_s} of {grace_s} s"
        rights = container.get("securityContext", {})
        if rights.get("runAsNonRoot") and rights.get("runAsUser") == 0:
            yield f"{container['name']}: root that is not root"
        for amounts in container.get("resources", {}).values():
            for name, amount in amounts.items():
                if not QUANTITY.fullmatch(str(amount)):
                    yield f"{container['name']}: {name} {amount}"
        limits = container.get("resources", {}).get("limits", {})
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            if "/" in name and limits.get(name) != amount:
                yield f"{container['name']}: {name} is requested and limited differently"
