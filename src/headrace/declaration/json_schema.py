"""The JSON Schema of headrace.yaml: editors complete and check the file with it."""

from typing import Any

from headrace.declaration.model import Declaration

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


def declaration_schema() -> dict[str, Any]:
    """Return the schema, with each key's description, default and bounds; `x-restart` marks what a reload cannot apply.

    A number or a boolean may also be written as a reference such as ${env:NAME}, so those are accepted too.
    """
    schema = Declaration.model_json_schema()
    _allow_references(schema)
    return {"$schema": SCHEMA_ID, "$id": "headrace/declaration/v1", **schema}


REFERENCE = {"type": "string", "pattern": r"\$\{(env|file):[^}]+\}"}


def _allow_references(node: Any) -> None:
    if isinstance(node, list):
        for item in node:  # pyright: ignore[reportUnknownVariableType]
            _allow_references(item)
        return
    if not isinstance(node, dict):
        return
    for child in list(node.values()):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        _allow_references(child)
    properties: Any = node.get("properties")  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(properties, dict):
        for key, declared in properties.items():  # pyright: ignore[reportUnknownVariableType]
            if key != "version":
                properties[key] = _with_reference(declared)


VALUE_RULES = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum")


def _with_reference(declared: Any) -> Any:
    """Turn a number's or boolean's rules into "these, or a reference"; leave everything else."""
    if any(option.get("type") in ("integer", "number") for option in declared.get("anyOf", ())):
        return {**declared, "anyOf": [*declared["anyOf"], REFERENCE]}
    if declared.get("type") not in ("integer", "number", "boolean"):
        return declared
    rules = {key: declared[key] for key in VALUE_RULES if key in declared}
    rest = {key: value for key, value in declared.items() if key not in VALUE_RULES}
    return {**rest, "anyOf": [rules, REFERENCE]}
