"""Judges rendered Kubernetes objects: core kinds by Kubernetes' own schemas, others by their CRDs' (tests/fixtures)."""

import json
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
