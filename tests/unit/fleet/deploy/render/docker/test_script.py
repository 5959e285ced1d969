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
case "$1 $2" in
  "container inspect") case "$RUNNING" in *"$3"*) exit 0;; *) exit 1;; esac;;
  "network inspect") exit 1;;
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


def _run(script: Path, *, running: str = "", **environ: str) -> tuple[int, list[list[str]], list[str], str]:
    folder = script.parent
    (folder / "bin").mkdir(exist_ok=True)
    docker, record = folder / "bin" / "docker", folder / "record"
    docker.write_text(RECORDER)
    docker.chmod(0o755)
    record.write_text("")
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "RECORD": str(record),
        "RUNNING": running,
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
    template = script.parent / "files" / "launch" / "chat" / "chat_template.jinja"
    assert template.read_text() == NASTY + "\n"
    engine = next(words for words in said if "llm-chat-0" in words)
    assert f"{template}:/etc/headrace/launch/chat/chat_template.jinja:ro" in engine
    assert f"{script.parent / 'models'}:/models:ro" in engine


def test_the_gateway_knows_the_engines_and_no_secret(script: Path) -> None:
    """The gateway's declaration has each replica as an endpoint, and the database by reference."""
    _run(script, **SECRETS)
    text = (script.parent / "files" / "headrace.yaml").read_text()
    tree = yaml.safe_load(text)
    assert tree["pools"]["chat"]["endpoints"] == ["http://chat-0:30000", "http://chat-1:30000"]
    assert tree["ledger"]["database"] == (
        "postgresql+psycopg://headrace:${env:HEADRACE_POSTGRES_PASSWORD}@postgres:5432/headrace"
    )
    assert "secret" not in text


def test_what_runs_drains_before_it_is_replaced(script: Path) -> None:
    """A container of the same name is stopped within its drain bound, removed, and only then started anew."""
    _, said, _, _ = _run(script, running="llm-chat-0", **SECRETS)
    steps = [words[:2] + words[-1:] for words in said if "llm-chat-0" in words and words[0] in ("stop", "rm")]
    assert steps == [["stop", "-t", "llm-chat-0"], ["rm", "llm-chat-0", "llm-chat-0"]]
    stop = next(words for words in said if words[0] == "stop")
    assert stop == ["stop", "-t", "20", "llm-chat-0"]


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
    _, said, _, _ = _run(script, running="llm-chat-0", **SECRETS)
    nowhere = {**os.environ, "DOCKER_HOST": f"unix://{script.parent}/no.sock"}
    for words in said:
        done = subprocess.run([client, *words], env=nowhere, capture_output=True, text=True, check=False)
        assert "Cannot connect to the Docker daemon" in done.stderr, (words, done.stderr)
