"""The gateway's own declaration: what it governs, with secrets by reference and files where they are mounted."""

from pathlib import Path, PurePosixPath

import yaml

from headrace.declaration.lint import OWN_ONLY
from headrace.declaration.load import load_declaration
from headrace.fleet.deploy.render.core.gateway_declaration import GatewayDeclaration, Reach, gateway_declaration

TEXT = """\
version: 1
gateway:
  listen: 127.0.0.1:8443
  tls: {certificate: chain.pem, key: /etc/tls/key.pem}
  limits: {body_bytes: 1048576}
models:
  chat: {source: file:/srv/chat, context_tokens: 4096, chat_template: "{{ x }}", weight_bytes: 10}
  far: {context_tokens: 8192}
pools:
  chat:
    model: chat
    engine: vllm
    served_model: literal-$${x}
    parallel: {tensor: 2}
    prefix_cache: {tenant_isolation: true}
    stop_s: 60
    probe: {interval_s: 5}
    container: {ipc: host}
    per_engine: {vllm: {disaggregation: {role: prefill}}}
  far:
    model: far
    engine: openai
    endpoints: ["https://far.example.com"]
    credentials: {bearer: "${env:FAR_KEY}", headers: {x-extra: "v-${file:keys/far}"}}
tenants:
  team-a: {models: [chat]}
ledger: {database: "postgresql+psycopg://u:${env:DB_PASSWORD}@db/x"}
deployment: {namespace: llm}
"""


def _make(tmp_path: Path, *, text: str = TEXT) -> GatewayDeclaration:
    path = tmp_path / "headrace.yaml"
    path.write_text(text)
    declaration = load_declaration(path, environ={}, is_elsewhere=True, keeps_secrets=True).declaration
    return gateway_declaration(
        declaration,
        {"chat": Reach(endpoints=("http://chat:8000",), by_dns=True)},
        folder="/srv/conf",
        listen="0.0.0.0:8443",
        control="127.0.0.1:7071",
        secret_dir=PurePosixPath("/run/secrets"),
        database="postgresql+psycopg://unused@db/x",
    )


def test_what_the_gateway_governs_is_what_was_declared(tmp_path: Path) -> None:
    """Rendered pools are endpoints elsewhere; what only shapes their engines is left out, all else stays."""
    tree = yaml.safe_load(_make(tmp_path).text)
    assert tree["pools"]["chat"] == {
        "model": "chat",
        "engine": "vllm",
        "served_model": "literal-$${x}",
        "prefix_cache": {"tenant_isolation": True},
        "disaggregation": {"role": "prefill"},
        "probe": {"interval_s": 5},
        "endpoints": ["http://chat:8000"],
        "discover": "dns",
    }
    assert tree["models"] == {"chat": {"context_tokens": 4096}, "far": {"context_tokens": 8192}}
    assert tree["tenants"] == {"team-a": {"models": ["chat"]}}
    assert tree["gateway"]["listen"] == "0.0.0.0:8443"
    assert tree["gateway"]["limits"] == {"body_bytes": 1048576}
    assert "deployment" not in tree
    assert not set(tree["pools"]["chat"]) & set(OWN_ONLY)


def test_secrets_are_references_and_files_are_mounted(tmp_path: Path) -> None:
    """No secret is read; each variable and each file is named, with where it comes from."""
    made = _make(tmp_path)
    tree = yaml.safe_load(made.text)
    assert made.secret_variables == ("DB_PASSWORD", "FAR_KEY")
    assert tree["ledger"]["database"] == "postgresql+psycopg://u:${env:DB_PASSWORD}@db/x"
    assert tree["pools"]["far"]["credentials"] == {
        "bearer": "${env:FAR_KEY}",
        "headers": {"x-extra": "v-${file:/run/secrets/pools-far-credentials-headers-x-extra}"},
    }
    assert {one.name: (one.origin, one.host_path) for one in made.secret_files} == {
        "gateway-tls-certificate": ("gateway.tls.certificate", str(tmp_path / "chain.pem")),
        "gateway-tls-key": ("gateway.tls.key", "/etc/tls/key.pem"),
        "pools-far-credentials-headers-x-extra": (
            "pools.far.credentials.headers.x-extra",
            "/srv/conf/keys/far",
        ),
    }


def test_it_loads(tmp_path: Path) -> None:
    """headrace itself accepts what it has written."""
    (tmp_path / "made.yaml").write_text(_make(tmp_path).text)
    loaded = load_declaration(tmp_path / "made.yaml", environ={}, is_elsewhere=True, keeps_secrets=True)
    assert loaded.declaration.pools["chat"].served_model == "literal-${x}"
    assert loaded.declaration.pools["chat"].is_remote


def test_a_deployed_database_is_used_where_none_is_declared(tmp_path: Path) -> None:
    """deployment.postgres needs nothing said about it in the ledger."""
    text = TEXT.replace('ledger: {database: "postgresql+psycopg://u:${env:DB_PASSWORD}@db/x"}\n', "")
    tree = yaml.safe_load(_make(tmp_path, text=text).text)
    assert tree["ledger"]["database"] == "postgresql+psycopg://unused@db/x"
