"""${env:NAME} and ${file:PATH}, and secrets that must not stand in the file."""

from pathlib import Path

import pytest

from headrace.declaration.load import load_declaration
from headrace.declaration.problem import DeclarationError, Severity

REMOTE = """
version: 1
models: {{m: {{}}}}
pools:
  p:
    model: m
    engine: vllm
    endpoints: [https://engine.example.com]
    credentials: {credentials}
"""


def remote(credentials: str) -> str:
    return REMOTE.format(credentials=credentials)


def test_a_secret_comes_from_the_environment(load) -> None:
    """bearer: ${env:NAME} is what the engine is shown."""
    loaded = load(remote('{bearer: "${env:TOKEN}", headers: {api-key: "k-${env:TOKEN}"}}'), TOKEN="s3cret")
    credentials = loaded.declaration.pools["p"].credentials
    assert (credentials.bearer, credentials.headers) == ("s3cret", {"api-key": "k-s3cret"})


def test_a_file_counts_from_the_declarations_folder(load, tmp_path: Path) -> None:
    """${file:PATH} reads a file beside the declaration, without its last line break."""
    (tmp_path / "token").write_text("from-file\n")
    assert load(remote('{bearer: "${file:token}"}')).declaration.pools["p"].credentials.bearer == "from-file"


def test_what_came_by_reference_is_not_expanded_again(load) -> None:
    """A secret that looks like a reference stays what it is."""
    loaded = load(remote('{bearer: "${env:A}"}'), A="${env:B}", B="no")
    assert loaded.declaration.pools["p"].credentials.bearer == "${env:B}"


def test_a_doubled_dollar_is_a_literal_one(load) -> None:
    """$${ gives ${ for templates that need it."""
    text = 'version: 1\nmodels: {m: {source: "file:.", chat_template: "a $${x} b"}}\npools: {p: {model: m}}'
    assert load(text).declaration.models["m"].chat_template == "a ${x} b"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:NOT_SET}", "the environment variable NOT_SET is not set"),
        ("${env:EMPTY}", "the environment variable EMPTY is empty"),
        ("${env:1a}", "is not the name of an environment variable"),
        ("${file:nowhere}", "the file nowhere cannot be read: No such file or directory"),
        ("${file:empty}", "the file empty is empty"),
        ("${file:binary}", "is not readable UTF-8 text"),
        ("${file:nul}", "the file nul holds the character NUL"),
        ("${vault:x}", "is not a reference"),
    ],
)
def test_a_reference_without_a_value_names_its_line(problems, tmp_path: Path, reference: str, said: str) -> None:
    """What a reference lacks is said with file, line and key."""
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "nul").write_text("a\0b")
    (problem,) = problems(remote(f'{{bearer: "{reference}"}}'), EMPTY="")
    assert said in problem.message
    assert (problem.line, problem.key) == (9, "pools.p.credentials.bearer")
    assert problem.file == str(tmp_path / "headrace.yaml")


@pytest.mark.parametrize(
    ("credentials", "key"),
    [
        ("{bearer: canary-123}", "pools.p.credentials.bearer"),
        ("{bearer: 123456}", "pools.p.credentials.bearer"),
        ("{headers: {api-key: canary-123}}", "pools.p.credentials.headers.api-key"),
        ("{headers: {Authorization: Bearer canary-123}}", "pools.p.credentials.headers.Authorization"),
    ],
)
def test_a_secret_in_clear_is_refused_with_the_remedy(problems, credentials: str, key: str) -> None:
    """A token in the file stops the start, and the message does not repeat it."""
    (problem,) = problems(remote(credentials))
    assert (problem.key, problem.message, problem.value) == (key, "holds a secret in clear", None)
    assert "${env:NAME}" in str(problem.hint)
    assert "canary" not in str(problem)


def test_plain_headers_may_stand_in_the_file(load) -> None:
    """Only headers that look like secrets need a reference."""
    loaded = load(remote("{headers: {x-team: blue}}"))
    assert loaded.declaration.pools["p"].credentials.headers == {"x-team": "blue"}


def test_a_database_password_in_clear_is_refused(problems, load) -> None:
    """The password of the ledger's URL comes from the environment."""
    base = "version: 1\nmodels: {m: {source: 'file:.'}}\npools: {p: {model: m}}\nledger: {database: '%s'}\n"
    (problem,) = problems(base % "postgresql+psycopg://u:canary-123@h/d")
    assert problem.key == "ledger.database"
    assert "canary" not in str(problem)
    loaded = load(base % "postgresql+psycopg://u:${env:PW}@h/d", PW="x")
    assert loaded.declaration.ledger.database == "postgresql+psycopg://u:x@h/d"


def test_a_redis_without_password_may_stand_in_clear(problems, load) -> None:
    """A URL of Redis is no secret, but for a password in it."""
    base = "version: 1\nmodels: {m: {source: 'file:.'}}\npools: {p: {model: m}}\ngateway: {sharing: {redis: '%s'}}\n"
    (problem,) = problems(base % "redis://:hunter2@redis:6379/0")
    assert problem.key == "gateway.sharing.redis"
    loaded = load(base % "redis://redis:6379/0")
    assert loaded.declaration.gateway.sharing.redis == "redis://redis:6379/0"


def test_secrets_never_show(load, problems) -> None:
    """A resolved secret is in no repr, no JSON, and no message."""
    text = remote('{bearer: "${env:TOKEN}", headers: {x-token: "${env:TOKEN}"}}')
    loaded = load(text, TOKEN="canary-123")
    assert "canary" not in repr(loaded)
    assert "canary" not in loaded.declaration.model_dump_json()
    assert '"(hidden)"' in loaded.declaration.model_dump_json()
    broken = text + "    threads: many\n    served_model: ['${env:TOKEN}']\ntenants: ${env:TOKEN}\n"
    found = problems(broken, TOKEN="canary-123")
    assert len(found) == 3
    assert all("canary" not in str(problem) for problem in found)


def test_a_secret_in_the_wrong_place_is_not_repeated(problems) -> None:
    """credentials: TOKEN (a text instead of a section) does not print the token."""
    found = problems(remote("canary-123"))
    assert found
    assert all("canary" not in str(problem) for problem in found)


def test_elsewhere_a_missing_secret_is_a_warning(problems, load) -> None:
    """A declaration can be checked where its secrets are not."""
    text = remote('{bearer: "${env:TOKEN}"}') + '    probe: {eject_after: "${env:N}"}\n'
    assert [problem.severity for problem in problems(text, is_elsewhere=True)] == [Severity.WARNING] * 2
    with pytest.raises(DeclarationError, match="2 errors"):
        load(text)


def test_a_number_may_come_from_the_environment(load) -> None:
    """A referenced number is read as a number."""
    text = remote("{}") + '    probe: {eject_after: "${env:N}"}\n'
    assert load(text, N="7").declaration.pools["p"].probe.eject_after == 7


def test_secrets_can_be_kept_as_they_are_written(tmp_path: Path) -> None:
    """For output that must refer to secrets: neither variable nor file is read, and other values are as ever."""
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "version: 1\nmodels: {far: {}}\n"
        "pools: {far: {model: far, engine: openai, served_model: '${env:NAME}', endpoints: ['https://far.example.com'],"
        " credentials: {bearer: '${env:KEY}', headers: {x: 'v-${file:missing}'}}}}\n"
        "ledger: {database: 'postgresql+psycopg://u:${env:DB}@db/x'}\n"
    )
    loaded = load_declaration(path, environ={"NAME": "real", "KEY": "secret"}, is_elsewhere=True, keeps_secrets=True)
    pool = loaded.declaration.pools["far"]
    assert pool.served_model == "real"
    assert (pool.credentials.bearer, pool.credentials.headers) == ("${env:KEY}", {"x": "v-${file:missing}"})
    assert loaded.declaration.ledger.database == "postgresql+psycopg://u:${env:DB}@db/x"
    assert loaded.warnings == ()
