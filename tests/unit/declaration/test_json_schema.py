"""The JSON Schema that editors use."""

from headrace.declaration.json_schema import declaration_schema


def test_it_knows_every_section_with_description_and_default() -> None:
    """An editor can complete and explain each key."""
    schema = declaration_schema()
    assert schema["additionalProperties"] is False
    pool = schema["$defs"]["Pool"]["properties"]
    assert pool["replicas"]["description"]
    assert pool["stop_s"]["default"] == 20
    assert pool["stop_s"]["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 3600}
    assert schema["$defs"]["Batching"]["properties"]["max_sequences"]["description"]
    assert schema["$defs"]["Gateway"]["properties"]["listen"]["x-restart"] is True


def test_numbers_may_be_references() -> None:
    """An editor does not complain about ${env:NAME} where a number stands."""
    schema = declaration_schema()["$defs"]["Pool"]["properties"]
    for key in ("threads", "replicas", "embeddings", "stop_s"):
        assert any("pattern" in option for option in schema[key]["anyOf"]), key
    assert "anyOf" not in schema["extra_args"]
