"""The compose project: valid by the specification's own schema, and with every word as it was declared."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from tools.render_goldens import GOLDEN

from headrace.fleet.deploy.render.compose.project import render_compose
from headrace.fleet.deploy.render.request import make_request

SCHEMA = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
"""The Compose Specification's schema, as check-jsonschema carries it (Apache-2.0)."""

NASTY = 'it\'s "quoted" $HOME ${NOT_OURS} $$ \\\nsecond line\n'

DECLARATION = """\
version: 1
gateway:
  listen: 0.0.0.0:443
  tls: {{certificate: tls/chain.pem, key: tls/key.pem}}
models:
  chat:
    source: file:/srv/weights/chat
    chat_template: {text}
    context_tokens: 4096
  far: {{}}
pools:
  chat:
    model: chat
    engine: sglang
    container: {{ipc: host, user: "1000:1000"}}
    runtime: {{env: {{HF_TOKEN: "${{env:HUB_TOKEN}}"}}}}
    extra_args: ["--note", {text}]
  far:
    model: far
    engine: openai
    endpoints: ["https://far.example.com"]
    credentials: {{bearer: "${{env:FAR_KEY}}", headers: {{api-key: "${{file:keys/far}}"}}}}
deployment:
  namespace: llm
  postgres: {{image: "postgres:18.1"}}
  redis: {{image: "valkey/valkey:9.0"}}
"""


def _project(folder: Path) -> dict[str, Any]:
    path = folder / "headrace.yaml"
    path.write_text(DECLARATION.format(text=json.dumps(NASTY).replace("${", "$${")))
    request, _ = make_request(path, environ={})
    rendered = render_compose(request)
    assert rendered.errors == ()
    return yaml.safe_load(rendered.files[0].text)


def test_its_head_says_how_services_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    """Images first, then service after service, each waited for; the loop stops at the first that is not healthy."""
    _project(tmp_path)
    request, _ = make_request(tmp_path / "headrace.yaml", environ={})
    head = [line for line in render_compose(request).files[0].text.splitlines() if line.startswith("# ")]
    loop = (
        "for one in chat-0 postgres redis gateway; do docker compose up --detach --no-deps --wait $one || break; done"
    )
    assert f"# {loop}" in head
    assert head.index("# docker compose pull --ignore-pull-failures") < head.index(f"# {loop}")


def test_weights_are_fetched_with_the_callers_token_mirrors_and_proxy(tmp_path: Path) -> None:
    """What is not set in the environment of compose stays empty, which is as if it were not there."""
    path = tmp_path / "headrace.yaml"
    source = "hf:acme/chat@0123456789abcdef0123456789abcdef01234567"
    path.write_text(f"version: 1\nmodels: {{m: {{source: '{source}'}}}}\npools: {{p: {{model: m, engine: vllm}}}}\n")
    request, _ = make_request(path, environ={})
    fetch = yaml.safe_load(render_compose(request).files[0].text)["services"]["fetch-0"]
    assert {"HF_TOKEN", "HF_ENDPOINT", "PIP_INDEX_URL", "HTTPS_PROXY"} <= set(fetch["environment"])
    assert fetch["environment"]["HF_ENDPOINT"] == "${HF_ENDPOINT:-}"


def _expanded(text: str) -> str:
    """What compose makes of a value without references of its own."""
    return text.replace("$$", "$")


def test_every_project_is_valid_by_the_schema(tmp_path: Path) -> None:
    """All goldens, and one with everything declared, pass the Compose Specification's schema."""
    validator = Draft7Validator(SCHEMA)
    texts = [path.read_text() for path in (GOLDEN / "compose").iterdir()]
    projects = [yaml.safe_load(text) for text in texts if not text.startswith("refused")]
    assert len(projects) >= 12
    for project in [*projects, _project(tmp_path)]:
        assert [error.message for error in validator.iter_errors(project)] == []


def test_the_engine_gets_every_word_as_it_was_declared(tmp_path: Path) -> None:
    """Dollars are not expanded, quotes and line breaks stay."""
    project = _project(tmp_path)
    command = project["services"]["chat-0"]["command"]
    assert _expanded(command[command.index("--note") + 1]) == NASTY
    assert _expanded(project["configs"]["chat-chat-template-jinja"]["content"]) == NASTY


def test_secrets_are_references(tmp_path: Path) -> None:
    """Variables come from the environment in which compose runs, files are secrets of the gateway alone."""
    project = _project(tmp_path)
    chat, gateway = project["services"]["chat-0"], project["services"]["gateway"]
    assert chat["environment"]["HF_TOKEN"].startswith("${HUB_TOKEN:?")
    assert set(gateway["environment"]) == {
        *("HEADRACE_STATE_DIR", "HEADRACE_CONFIG", "FAR_KEY", "HEADRACE_POSTGRES_PASSWORD"),
    }
    declared = yaml.safe_load(_expanded(project["configs"]["gateway"]["content"]))
    assert declared["pools"]["far"]["credentials"]["bearer"] == "${env:FAR_KEY}"
    assert declared["gateway"]["sharing"] == {"redis": "redis://redis:6379/0"}
    assert declared["gateway"]["tls"]["key"] == "/run/secrets/gateway-tls-key"
    assert project["secrets"]["gateway-tls-key"]["file"] == str(tmp_path / "tls/key.pem")
    header = declared["pools"]["far"]["credentials"]["headers"]["api-key"]
    assert header == "${file:/run/secrets/pools-far-credentials-headers-api-key}"
    assert len(gateway["secrets"]) == 3
    assert "secrets" not in chat


def test_only_the_gateways_port_is_published(tmp_path: Path) -> None:
    """Engines, which have no authentication, are reached by nothing but the gateway."""
    services = _project(tmp_path)["services"]
    assert services["gateway"]["ports"] == ["443:443"]
    assert [name for name, service in services.items() if "ports" in service] == ["gateway"]


def test_declared_containers_are_as_declared(tmp_path: Path) -> None:
    """User and shared memory of the declaration win; a user that the image does not know gets a home."""
    chat = _project(tmp_path)["services"]["chat-0"]
    assert (chat["user"], chat["ipc"]) == ("1000:1000", "host")
    assert "shm_size" not in chat
    assert chat["environment"]["HOME"] == "/scratch/home"
    assert chat["tmpfs"] == ["/scratch/home:mode=1777"]
    assert chat["volumes"][0]["source"] == "/srv/weights/chat"


def test_the_gateway_waits_for_its_stores(tmp_path: Path) -> None:
    """PostgreSQL and Redis are healthy before the gateway starts; engines need not be ready."""
    waits = _project(tmp_path)["services"]["gateway"]["depends_on"]
    assert {name: wait["condition"] for name, wait in waits.items()} == {
        "chat-0": "service_started",
        "postgres": "service_healthy",
        "redis": "service_healthy",
    }


def test_one_pool_alone_has_no_gateway(tmp_path: Path) -> None:
    """--pool writes the engines of one pool."""
    path = tmp_path / "headrace.yaml"
    path.write_text(DECLARATION.format(text='"x"'))
    request, _ = make_request(path, environ={}, pool="chat")
    project = yaml.safe_load(render_compose(request).files[0].text)
    assert list(project["services"]) == ["chat-0"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_disaggregated_pair_knows_its_own_address(engine: str) -> None:
    """vLLM's replicas say where the other side finds them: the container's address, not the one they listen on."""
    project = yaml.safe_load((GOLDEN / "compose" / f"{engine}-disaggregated.yaml").read_text())
    for role in ("prefill", "decode"):
        service = project["services"][f"chat-{role}-0"]
        assert ("hostname -i" in " ".join(service["entrypoint"])) == (engine == "vllm")
        assert "0.0.0.0" not in service["environment"].values()
