"""Where an instance's declaration comes from."""

import re
from pathlib import Path

import pytest

from headrace.declaration.problem import DeclarationError
from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.process_identity import own_identity
from headrace.fleet.deploy.state_files import SupervisorFile
from headrace.wiring.declared import Source, argument_parser, refuse_another, running_source, source_of

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
    assert source_of(argument_parser("x").parse_args(source.arguments())) == source


def running(source: Source, **changes: object) -> SupervisorFile:
    told = {"config_file": None if source.config is None else str(source.config), "arguments": source.arguments()}
    rest = {"version": "1", "started_at": 0.0, "on_supervisor_loss": "stop"}
    urls = {"inference_url": "", "control_url": "", "declaration_digest": ""}
    return SupervisorFile(process=own_identity(), **{**told, **rest, **urls, **changes})  # type: ignore[arg-type]


FILE = Source(config=Path("/srv/a/headrace.yaml"))
SET = Source(config=FILE.config, overrides=("a.b=c",))


def test_a_running_instance_says_what_it_was_told() -> None:
    """Also one of an older version, which noted its file alone."""
    for source in (ENDPOINT, FILE, SET, Source()):
        assert running_source(running(source)) == source
    assert running_source(running(SET, arguments=None)) == FILE


@pytest.mark.parametrize(
    ("asked", "runs", "said"),
    [
        (Source(endpoint="http://b:1"), ENDPOINT, "on the engine at http://127.0.0.1:9/v1, not on the engine at http://b:1"),
        (Source(endpoint="http://b:1"), FILE, "on /srv/a/headrace.yaml, not on the engine at http://b:1"),
        (FILE, Source(), "on the built-in declaration, not on /srv/a/headrace.yaml (no such file)"),
        (Source(config=Path("/dev/null")), FILE, "on /srv/a/headrace.yaml, not on /dev/null"),
        (SET, FILE, "started with no --set"),
        (Source(overrides=("x.y=1",)), SET, "started with --set a.b=c"),
    ],
)  # fmt: skip
def test_what_runs_is_not_taken_for_something_else(asked: Source, runs: Source, said: str) -> None:
    """`up` for another file, engine or --set than the running one's is refused, with the way to get it."""
    with pytest.raises(OperatorError, match=re.escape(said)) as refused:
        refuse_another(asked, runs)
    assert "headrace down" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("asked", "runs"),
    [
        (Source(), FILE),
        (Source(), ENDPOINT),
        (FILE, SET),
        (SET, SET),
        (Source(endpoint="http://127.0.0.1:9/"), ENDPOINT),
    ],
)
def test_what_runs_is_shown_where_nothing_else_was_asked_for(asked: Source, runs: Source) -> None:
    """`up` again, from whatever folder, shows how to use the running one."""
    refuse_another(asked, runs)
