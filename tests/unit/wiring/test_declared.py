"""Where an instance's declaration comes from."""

import argparse
from pathlib import Path

import pytest

from headrace.declaration.problem import DeclarationError
from headrace.domain.endpoint import EngineKind
from headrace.wiring.declared import Source

ENDPOINT = Source(
    endpoint="http://127.0.0.1:9/v1",
    engine=EngineKind.VLLM,
    served_model="acme/${chat}",
    context_tokens=4096,
    overrides=("gateway.listen=127.0.0.1:7999", "pools.default.answer_timeout_s=7"),
)


def test_a_value_can_be_set_in_front_of_an_engine_that_runs() -> None:
    """`up --endpoint URL --set ...` changes what is declared without a file, and nothing else of it."""
    plain = Source(
        endpoint=ENDPOINT.endpoint, engine=ENDPOINT.engine, served_model=ENDPOINT.served_model, context_tokens=4096
    ).loader({})()
    loaded = ENDPOINT.loader({})()
    assert loaded.path is None
    assert loaded.digest != plain.digest
    assert loaded.declaration.gateway.listen == "127.0.0.1:7999"
    pool, before = loaded.declaration.pools["default"], plain.declaration.pools["default"]
    assert pool.answer_timeout_s == 7
    assert pool.model_copy(update={"answer_timeout_s": before.answer_timeout_s}) == before
    assert loaded.declaration.models == plain.declaration.models


def test_a_value_that_is_wrong_there_is_named() -> None:
    """A slip is refused as in a file."""
    source = Source(endpoint="http://127.0.0.1:9", engine=EngineKind.VLLM, overrides=("pools.default.typo=1",))
    with pytest.raises(DeclarationError, match=r"pools\.default\.typo: there is no such key"):
        source.loader({})()


@pytest.mark.parametrize("source", [ENDPOINT, Source(config=Path("/x.yaml"), overrides=("a.b=c",)), Source()])
def test_the_supervisors_process_is_told_everything(source: Source) -> None:
    """What `up` was told reaches the process that it starts in the background."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--endpoint")
    parser.add_argument("--engine", type=EngineKind)
    parser.add_argument("--served-model")
    parser.add_argument("--context-tokens", type=int)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    told = vars(parser.parse_args(source.arguments()))
    assert Source(**{**told, "overrides": tuple(told["overrides"])}) == source
