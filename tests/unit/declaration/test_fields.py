"""The keys of headrace.yaml as documentation sees them."""

import pytest

from headrace.declaration.fields import accepts, allowed_values, field_at, has_mark, iter_key_docs, section_at
from headrace.declaration.model import GatewayLimits, Probe


def test_every_key_has_a_sentence_and_a_default() -> None:
    """No key of the file is undocumented."""
    docs = {doc.key: doc for doc in iter_key_docs()}
    assert len(docs) > 70
    for doc in docs.values():
        assert doc.description.endswith(".") or "null:" in doc.description, doc.key
        assert doc.type_text, doc.key
    assert docs["gateway.limits.body_bytes"].unit == "bytes"
    assert docs["gateway.limits.body_bytes"].bounds == "1024 to 1073741824"
    assert docs["pools.<name>.engine"].type_text == "llamacpp, vllm, sglang, tensorrt-llm, openai"
    assert docs["pools.<name>.model"].default_text == "required"
    assert docs["gateway.listen"].needs_restart
    assert docs["pools.<name>.credentials.bearer"].is_secret


@pytest.mark.parametrize("suffix", ["_ms", "_sec", "_seconds", "_mb", "_kb"])
def test_units_are_in_the_names(suffix: str) -> None:
    """Durations are in seconds and sizes in bytes, everywhere."""
    assert [doc.key for doc in iter_key_docs() if doc.key.endswith(suffix)] == []


def test_paths_lead_to_fields_and_sections() -> None:
    """A message can look up the section or field that a key path means."""
    assert section_at(("gateway", "limits")) is GatewayLimits
    assert section_at(("pools", "any", "probe")) is Probe
    assert section_at(("gateway", "listen")) is None
    assert field_at(("pools", "any", "nothing")) is None
    assert allowed_values(("gateway", "fields", "unknown_fields")) == ("forward", "refuse")
    assert accepts(("observability", "request_log"), bool)
    assert not accepts(("pools", "any", "replicas"), bool)


def test_marks_hold_for_what_is_below() -> None:
    """What is inside a secret is secret too."""
    assert has_mark(("pools", "any", "credentials", "headers", "x"), "x-secret")
    assert not has_mark(("pools", "any", "threads"), "x-secret")
    assert has_mark(("gateway", "tls", "key"), "x-path")
