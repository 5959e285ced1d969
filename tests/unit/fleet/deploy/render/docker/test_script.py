"""The docker script, run for real against a `docker` that writes down what it is told."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from headrace.fleet.deploy.render.docker.script import render_docker
from headrace.fleet.deploy.render.request import make_request

RECORDER = """\
#!/bin/sh
case "$1 $2 $3" in
  "container inspect --format") case " $SICK " in *" $5 "*) echo "unhealthy 0";; *) echo "healthy 0";; esac; exit;;
  "container inspect "*) [ -e "$CONTAINERS/$3" ]; exit;;
  "network inspect "*|"image inspect "*) exit 1;;
  "rename "*) mv "$CONTAINERS/$2" "$CONTAINERS/$3";;
  "rm --force "*) rm "$CONTAINERS/$3";;
  "rm "*) rm "$CONTAINERS/$2";;
  "pull "*) [ "$3" != "$MISSING" ] || exit 1;;
  "logs "*) echo "out of memory";;
  "run --detach "*) echo fresh > "$CONTAINERS/$5";;
esac
{ printf '%s\\036' "$@"; printf '%s\\035' "${HF_TOKEN-}"; } >> "$RECORD"
"""
"""Words end with a record separator, the secret after them with a group separator."""

NASTY = 'it\'s "quoted" $HOME `id` $(id) \\ & | ; * ~ #\nHEADRACE_END\n{{ x }}'

DECLARATION = """\
version: 1
models:
  chat:
    source: hf:acme/chat@0123456789abcdef0123456789abcdef01234567
    chat_template: {template}
    context_tokens: 4096
pools:
  chat:
    model: chat
    engine: vllm
    placement: {{replicas: 2}}
    runtime: {{env: {{HF_TOKEN: "${{env:HUB_TOKEN}}", PLAIN: "a b $c"}}}}
    extra_args: ["--note", {note}]
deployment:
  namespace: llm
  models: {{host_dir: {models}}}
  postgres: {{image: "postgres:18.1"}}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A declaration full of what a shell would take for its own, rendered."""
    path = tmp_path / "headrace.yaml"
    quoted = json.dumps(NASTY).replace("${", "$${")
    path.write_text(DECLARATION.format(template=quoted, note=quoted, models=tmp_path / "models"))
    request, _ = make_request(path, environ={})
    rendered = render_docker(request)
    assert rendered.errors == ()
    (tmp_path / "run.sh").write_text(rendered.files[0].text)
    return tmp_path / "run.sh"


def _run(script: Path, *running: str, **environ: str) -> tuple[int, list[list[str]], list[str], str]:
    folder = script.parent
    (folder / "bin").mkdir(exist_ok=True)
    docker, record = folder / "bin" / "docker", folder / "record"
    docker.write_text(RECORDER)
    docker.chmod(0o755)
    record.write_text("")
    (folder / "bin" / "sleep").write_text("#!/bin/sh\n")
    (folder / "bin" / "sleep").chmod(0o755)
    containers = folder / "containers"
    shutil.rmtree(containers, ignore_errors=True)
    containers.mkdir()
    for name in running:
        (containers / name).write_text("old\n")
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "RECORD": str(record),
        "CONTAINERS": str(containers),
        "SICK": "",
        "MISSING": "",
        "HEADRACE_FILES": str(folder / "files"),
        **environ,
    }
    done = subprocess.run(["sh", str(script)], env=env, capture_output=True, text=True, check=False)
    said = [call.split("\036") for call in record.read_text().split("\035")[:-1]]
    return done.returncode, [words[:-1] for words in said], [words[-1] for words in said], done.stderr


SECRETS = {"HUB_TOKEN": "hf-secret", "HEADRACE_POSTGRES_PASSWORD": "pg-secret"}


def test_a_missing_secret_is_named_before_anything_starts(script: Path) -> None:
    """Without a secret that the declaration names, nothing runs."""
    code, said, _, error = _run(script, HEADRACE_POSTGRES_PASSWORD="x")
    assert code != 0
    assert "HUB_TOKEN" in error
    assert said == []


def test_docker_gets_every_word_as_it_was_declared(script: Path) -> None:
    """Quotes, dollars and line breaks of the declaration reach the engine untouched."""
    code, said, tokens, error = _run(script, **SECRETS)
    assert (code, error) == (0, "")
    engines = [number for number, words in enumerate(said) if "llm-chat-0" in words or "llm-chat-1" in words]
    assert len(engines) == 2
    for number in engines:
        words = said[number]
        image = next(place for place, word in enumerate(words) if word.startswith("docker.io/vllm/vllm-openai:"))
        assert words[words.index("--entrypoint") + 1] == "vllm"
        assert words[image + 1] == "serve"
        assert words[words.index("--note", image) + 1] == NASTY
        assert "PLAIN=a b $c" in words
        assert tokens[number] == "hf-secret"
    assert "hf-secret" not in json.dumps(said)
    assert "pg-secret" not in json.dumps(said)


def test_replicas_get_devices_of_their_own(script: Path) -> None:
    """Two replicas do not share a GPU."""
    _, said, _, _ = _run(script, **SECRETS)
    assert [words[words.index("--gpus") + 1] for words in said if "--gpus" in words] == ['"device=0"', '"device=1"']


def test_files_are_written_as_declared_and_mounted_read_only(script: Path) -> None:
    """The template that the command names is there, byte for byte, whatever it holds."""
    _, said, _, _ = _run(script, **SECRETS)
    [template] = (script.parent / "files" / "launch" / "chat").glob("*/chat_template.jinja")
    assert template.read_text() == NASTY + "\n"
    engine = next(words for words in said if "llm-chat-0" in words)
    assert f"{template}:/etc/headrace/launch/chat/chat_template.jinja:ro" in engine
    assert f"{script.parent / 'models'}:/models:ro" in engine


def test_the_gateway_knows_the_engines_and_no_secret(script: Path) -> None:
    """The gateway's declaration has each replica as an endpoint, and the database by reference."""
    _run(script, **SECRETS)
    [path] = (script.parent / "files" / "gateway").glob("*/headrace.yaml")
    text = path.read_text()
    tree = yaml.safe_load(text)
    assert tree["pools"]["chat"]["endpoints"] == ["http://chat-0:30000", "http://chat-1:30000"]
    assert tree["ledger"]["database"] == (
        "postgresql+psycopg://headrace:${env:HEADRACE_POSTGRES_PASSWORD}@postgres:5432/headrace"
    )
    assert "secret" not in text


def _steps(said: list[list[str]], *verbs: str) -> list[str]:
    """Which container was stopped, started or removed, in this order."""
    return [f"{words[0]} {words[4] if words[0] == 'run' else words[-1]}" for words in said if words[0] in verbs]


def _containers(script: Path) -> dict[str, str]:
    return {path.name: path.read_text().strip() for path in sorted((script.parent / "containers").iterdir())}


def test_replicas_are_replaced_one_after_the_other(script: Path) -> None:
    """Each drains first; the next one is touched only when the successor is healthy, and then the old one is gone."""
    code, said, _, _ = _run(script, "llm-chat-0", "llm-chat-1", **SECRETS)
    assert code == 0
    assert [word for word in _steps(said, "stop", "run", "rm") if "chat" in word] == [
        *("stop llm-chat-0", "run llm-chat-0", "rm llm-chat-0-before"),
        *("stop llm-chat-1", "run llm-chat-1", "rm llm-chat-1-before"),
    ]
    assert next(words for words in said if words[0] == "stop") == ["stop", "-t", "20", "llm-chat-0"]
    fresh = dict.fromkeys(("llm-chat-0", "llm-chat-1", "llm-gateway", "llm-postgres"), "fresh")
    assert _containers(script) == fresh


def test_a_replica_that_does_not_become_healthy_is_taken_back(script: Path) -> None:
    """The one before it runs again, the others were not touched, and its last words are shown."""
    code, said, _, error = _run(script, "llm-chat-0", "llm-chat-1", "llm-gateway", SICK="llm-chat-0", **SECRETS)
    assert code == 1
    assert "llm-chat-0 does not become healthy" in error
    assert "out of memory" in error
    assert said[-1] == ["start", "llm-chat-0"]
    assert _steps(said, "stop") == ["stop llm-chat-0"]
    old = dict.fromkeys(("llm-chat-0", "llm-chat-1", "llm-gateway"), "old")
    assert _containers(script) == {**old, "llm-postgres": "fresh"}


def test_a_fresh_replica_that_does_not_become_healthy_is_said_and_left(script: Path) -> None:
    """There is nothing to take back; all others were started, and the script fails."""
    code, said, _, error = _run(script, SICK="llm-chat-0", **SECRETS)
    assert code == 1
    assert "llm-chat-0 does not become healthy" in error
    assert _steps(said, "stop", "rm", "start") == []
    assert _containers(script)["llm-gateway"] == "fresh"


def test_images_are_there_before_anything_is_stopped(script: Path) -> None:
    """An image that can neither be pulled nor found ends the script while everything still runs."""
    code, said, _, error = _run(script, "llm-chat-0", MISSING="postgres:18.1", **SECRETS)
    assert code == 1
    assert "postgres:18.1" in error
    assert {words[0] for words in said} == {"pull"}
    code, said, _, _ = _run(script, "llm-chat-0", **SECRETS)
    verbs = [words[0] for words in said]
    assert verbs.index("stop") > max(at for at, verb in enumerate(verbs) if verb == "pull")


def test_a_run_that_was_cut_short_is_taken_up(script: Path) -> None:
    """What it left unproven is not what a later failure goes back to."""
    code, _, _, _ = _run(script, "llm-chat-0", "llm-chat-0-before", SICK="llm-chat-0", **SECRETS)
    assert code == 1
    assert _containers(script)["llm-chat-0"] == "old"
    assert _run(script, "llm-chat-0", "llm-chat-0-before", **SECRETS)[0] == 0
    assert "llm-chat-0-before" not in _containers(script)


def test_services_that_must_be_there_start_first(script: Path) -> None:
    """Weights, then the database, then engines, then the gateway."""
    _, said, _, _ = _run(script, **SECRETS)
    names = [words[words.index("--name") + 1] for words in said if "--name" in words]
    assert names == ["llm-fetch", "llm-postgres", "llm-chat-0", "llm-chat-1", "llm-gateway"]


def test_docker_itself_knows_every_option(script: Path) -> None:
    """The real client takes each command line apart without a complaint, and only then misses its daemon."""
    client = shutil.which("docker")
    if client is None:
        assert "CI" not in os.environ, "install the docker client: the script's options were not checked"
        pytest.skip("no docker client here: the script's options are not checked")
    _, said, _, _ = _run(script, "llm-chat-0", SICK="llm-chat-0", **SECRETS)
    nowhere = {**os.environ, "DOCKER_HOST": f"unix://{script.parent}/no.sock"}
    for words in said:
        done = subprocess.run([client, *words], env=nowhere, capture_output=True, text=True, check=False)
        assert "Cannot connect to the Docker daemon" in done.stderr, (words, done.stderr)
