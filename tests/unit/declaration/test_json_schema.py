"""The JSON Schema that editors use."""

from headrace.declaration.json_schema import declaration_schema


def test_it_knows_every_section_with_description_and_default() -> None:
    """An editor can complete and explain each key."""
    schema = declaration_schema()
    assert schema["additionalProperties"] is False
    pool = schema["$defs"]["Pool"]["properties"]
    assert pool["slots"]["description"]
    assert pool["slots"]["default"] == 4
    assert pool["slots"]["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 256}
    assert schema["$defs"]["Gateway"]["properties"]["listen"]["x-restart"] is True


def test_numbers_may_be_references() -> None:
    """An editor does not complain about ${env:NAME} where a number stands."""
    schema = declaration_schema()["$defs"]["Pool"]["properties"]
    for key in ("slots", "replicas", "embeddings", "stop_s"):
        assert any("pattern" in option for option in schema[key]["anyOf"]), key
    assert "anyOf" not in schema["extra_args"]
