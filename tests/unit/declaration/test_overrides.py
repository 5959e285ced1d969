"""`--set key.path=value`."""

from pathlib import Path

import pytest

from headrace.declaration.load import Loaded, load_text, this_machine
from headrace.declaration.problem import DeclarationError

TEXT = """\
version: 1
models:
  qwen2.5-32b: {context_tokens: 4096}
pools:
  main: {model: qwen2.5-32b, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
"""


def load(*overrides: str) -> Loaded:
    return load_text(
        TEXT,
        path=Path("/etc/headrace.yaml"),
        environ={"N": "9"},
        is_elsewhere=True,
        machine=this_machine(),
        overrides=overrides,
    )


def refused(*overrides: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        load(*overrides)
    return str(caught.value)


def test_a_value_is_replaced() -> None:
    """As if the file had it, with YAML's types."""
    pool = load("pools.main.engine=sglang", "pools.main.endpoints=[http://127.0.0.1:2]").declaration.pools["main"]
    assert pool.engine == "sglang"
    assert pool.endpoints == ("http://127.0.0.1:2",)


def test_the_last_one_wins() -> None:
    """Repeated, the later value holds."""
    assert load("gateway.drain_s=1", "gateway.drain_s=2").declaration.gateway.drain_s == 2


def test_sections_are_made_on_the_way() -> None:
    """What the file does not have yet is added; a whole section may be given too."""
    declaration = load("gateway.limits.in_flight=7", "observability={log_level: debug}").declaration
    assert declaration.gateway.limits.in_flight == 7
    assert declaration.observability.log_level == "debug"


def test_names_may_hold_dots() -> None:
    """A name of the file is found with its dots, quoted or not."""
    assert load("models.qwen2.5-32b.context_tokens=8192").declaration.models["qwen2.5-32b"].context_tokens == 8192
    assert load('models."qwen2.5-32b".context_tokens=8192').declaration.models["qwen2.5-32b"].context_tokens == 8192


def test_references_are_expanded() -> None:
    """A value may be ${env:NAME}, as in the file; an empty one is null."""
    assert load("gateway.drain_s=${env:N}").declaration.gateway.drain_s == 9
    assert load("gateway.heartbeat_s=").declaration.gateway.heartbeat_s is None


def test_wrong_keys_name_the_nearest() -> None:
    """A typo in a key or in a name is said with what was meant."""
    assert 'Did you mean "engine"?' in refused("pools.main.enginee=sglang")
    assert "There are: main." in refused("pools.other.engine=sglang")
    assert 'Did you mean "sglang"?' in refused("pools.main.engine=sglag")


@pytest.mark.parametrize("text", ["pools.main.engine", "=x", "..=x", "gateway.cors={"])
def test_what_is_no_assignment_is_refused(text: str) -> None:
    """The form is KEY.PATH=VALUE, and the value is YAML."""
    assert f"--set {text}" in refused(text)


def test_the_digest_tells_them_apart() -> None:
    """`headrace up` sees that another value is in force."""
    assert load().digest != load("gateway.drain_s=1").digest
