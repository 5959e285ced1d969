"""The units: accepted by systemd itself, hardened, and with every word as it was declared."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tools.render_goldens import GOLDEN

from headrace.fleet.deploy.render.core.model import Rendered
from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.systemd.units import render_systemd

NASTY = 'it\'s "quoted" $HOME ${X} %h %% \\n \\ two  blanks\ttab'

DECLARATION = """\
version: 1
gateway: {{listen: "0.0.0.0:443", tls: {{certificate: tls/chain.pem, key: /etc/tls/key.pem}}}}
models:
  chat:
    source: hf:acme/chat@0123456789abcdef0123456789abcdef01234567
    chat_template: "{{{{ x }}}}"
    context_tokens: 4096
  small:
    source: file:{home}/small.gguf
pools:
  chat:
    model: chat
    engine: vllm
    port: 30000
    stop_s: 60
    placement: {{replicas: 2}}
    parallel: {{tensor: 2}}
    runtime: {{python: {python}, env: {{HF_TOKEN: "${{env:HUB_TOKEN}}", PLAIN: {text}}}}}
    extra_args: ["--note", {text}]
  small:
    model: small
    port: 31000
    runtime: {{command: [{python}]}}
deployment:
  namespace: llm
  gateway: {{python: {python}}}
"""


def target_of(folder: Path, text: str) -> str:
    path = folder / "headrace.yaml"
    path.write_text(text)
    request, _ = make_request(path, environ={})
    return next(file.text for file in render_systemd(request).files if file.path.endswith(".target"))


def test_the_target_speaks_of_secrets_only_where_there_are_some(tmp_path: Path) -> None:
    """Nobody looks for a template that was not rendered."""
    pool = "pools: {small: {model: small, runtime: {command: [/bin/true]}%s}}\n"
    start = "version: 1\nmodels: {small: {source: 'file:/srv/small.gguf'}}\n"
    assert "env.example" not in target_of(tmp_path, start + pool % "")
    secret = ", engine: vllm, port: 30000"
    secret = pool.replace("command: [/bin/true]", "command: [/bin/true], env: {A: '${env:A}'}") % secret
    assert "env.example" in target_of(tmp_path, start + secret)


def test_the_target_says_how_units_are_replaced_one_after_the_other(rendered: Rendered) -> None:
    """Weights, each replica, the gateway; it stops at the first that does not come up."""
    text = next(file.text for file in rendered.files if file.path.endswith(".target"))
    [line] = [line for line in text.splitlines() if "for one in" in line]
    units = "llm-models.service llm-chat-0.service llm-chat-1.service llm-small-0.service llm-gateway.service"
    assert f"for one in {units}; do systemctl restart $one || break; done" in line


@pytest.fixture
def rendered(tmp_path: Path) -> Rendered:
    """A declaration full of what systemd would take for its own."""
    path = tmp_path / "headrace.yaml"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    home = Path("/home") / "ops"
    path.write_text(DECLARATION.format(text=json.dumps(NASTY).replace("${", "$${"), python=python, home=home))
    request, _ = make_request(path, environ={})
    return render_systemd(request)


def _units(rendered: Rendered) -> dict[str, str]:
    return {Path(file.path).name: file.text for file in rendered.files if file.path.startswith("etc/systemd/system/")}


def _values(unit: str, key: str) -> list[str]:
    """Return the values of `key`, with continued lines joined."""
    joined = unit.replace("\\\n", " ")
    return [line.partition("=")[2] for line in joined.splitlines() if line.startswith(f"{key}=")]


def _words(value: str, *, is_command: bool) -> list[str]:
    """Split as systemd does: double quotes, backslash escapes, %% and, in commands, $$.

    Source: systemd.syntax(7) "Quoting", systemd.unit(5) "Specifiers", systemd.service(5) "Command lines".
    """
    found: list[str] = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', value):
        assert '"' not in plain
        assert "\\" not in plain
        word = re.sub(r"\\(.)", lambda part: {"n": "\n", "t": "\t"}.get(part[1], part[1]), quoted) if quoted else plain
        assert re.search(r"(?<!%)(?:%%)*%(?!%)", word) is None, f"a specifier in {word}"
        word = word.replace("%%", "%")
        if is_command:
            assert re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", word) is None, f"a variable in {word}"
            word = word.replace("$$", "$")
        found.append(word)
    return found


def test_systemd_accepts_the_units(rendered: Rendered, tmp_path: Path) -> None:
    """`systemd-analyze verify` finds nothing wrong with any unit."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        assert "CI" not in os.environ, "install systemd: its own check of the units did not run"
        pytest.skip("systemd-analyze is not here: the units are checked by our own parser alone")
    folder = tmp_path / "units"
    folder.mkdir()
    for name, text in _units(rendered).items():
        (folder / name).write_text(text)
    env = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"}
    done = subprocess.run(
        [tool, "verify", "--man=no", *map(str, sorted(folder.iterdir()))],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "llm" in line and "curl is not executable" not in line]
    assert ours == []


def test_every_word_reaches_the_engine_as_it_was_declared(rendered: Rendered) -> None:
    """Quotes, dollars, percent signs and backslashes are neither expanded nor lost."""
    unit = _units(rendered)["llm-chat-0.service"]
    (start,) = _values(unit, "ExecStart")
    words = _words(start, is_command=True)
    assert words[1:4] == ["-m", "vllm.entrypoints.cli.main", "serve"]
    assert words[words.index("--note") + 1] == NASTY
    env = [word for value in _values(unit, "Environment") for word in _words(value, is_command=False)]
    assert f"PLAIN={NASTY}" in env


def test_replicas_have_ports_devices_and_files_of_their_own(rendered: Rendered) -> None:
    """Two replicas on one machine share neither port nor GPU, and the gateway knows both."""
    units = _units(rendered)
    for number, devices in ((0, "0,1"), (1, "2,3")):
        unit = units[f"llm-chat-{number}.service"]
        assert f"--port {30000 + number}" in unit
        assert f"Environment=CUDA_VISIBLE_DEVICES={devices}" in unit
        assert f"/etc/llm/launch/chat-{number}/chat_template.jinja" in unit
        assert f"CacheDirectory=llm/chat-{number}" in unit
    texts = {file.path: file.text for file in rendered.files}
    declared = yaml.safe_load(texts["etc/llm/headrace.yaml"])
    assert declared["pools"]["chat"]["endpoints"] == ["http://127.0.0.1:30000", "http://127.0.0.1:30001"]
    assert declared["gateway"]["listen"] == "0.0.0.0:443"


def test_secrets_are_files_that_somebody_fills_in(rendered: Rendered) -> None:
    """A unit names a file with its secrets; only a template without values is rendered."""
    texts = {file.path: file.text for file in rendered.files}
    assert "EnvironmentFile=/etc/llm/chat-0.env" in _units(rendered)["llm-chat-0.service"]
    assert texts["etc/llm/chat-0.env.example"].endswith("# the declaration's ${env:HUB_TOKEN}\nHF_TOKEN=\n")
    assert "etc/llm/chat-0.env" not in texts


def test_files_that_only_root_reads_are_handed_to_the_gateway(rendered: Rendered, tmp_path: Path) -> None:
    """A user that systemd makes cannot read a private key: systemd does, and shows it to the gateway alone."""
    unit = _units(rendered)["llm-gateway.service"]
    assert _values(unit, "LoadCredential") == [
        f"gateway-tls-certificate:{tmp_path}/tls/chain.pem",
        "gateway-tls-key:/etc/tls/key.pem",
    ]
    texts = {file.path: file.text for file in rendered.files}
    tls = yaml.safe_load(texts["etc/llm/headrace.yaml"])["gateway"]["tls"]
    assert tls["key"] == "/run/credentials/llm-gateway.service/gateway-tls-key"


def test_pools_without_ports_get_ports_of_their_own(tmp_path: Path) -> None:
    """Two pools that declare none do not meet on one machine."""
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "models: {a: {source: file:/srv/a.gguf}}\npools:\n"
        "  one: {model: a, threads: 1, replicas: 2}\n  two: {model: a, threads: 1}\n"
    )
    request, _ = make_request(path, environ={})
    texts = {file.path: file.text for file in render_systemd(request).files}
    pools = yaml.safe_load(texts["etc/headrace/headrace.yaml"])["pools"]
    assert pools["one"]["endpoints"] == ["http://127.0.0.1:30000", "http://127.0.0.1:30001"]
    assert pools["two"]["endpoints"] == ["http://127.0.0.1:30100"]


def test_drain_and_restart(rendered: Rendered) -> None:
    """SIGTERM, the declared drain bound, then the whole group; a replica that ends starts again, but not for ever."""
    unit = _units(rendered)["llm-chat-0.service"]
    expected = {"KillSignal": "SIGTERM", "KillMode": "mixed", "TimeoutStopSec": "60", "Restart": "always"}
    expected |= {"TimeoutStartSec": "600", "StartLimitBurst": "5"}
    assert {key: _values(unit, key) for key in expected} == {key: [value] for key, value in expected.items()}
    assert "--shutdown-timeout 58" in unit


HARDENING = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "DynamicUser": "yes", "CapabilityBoundingSet": ""}


def test_units_may_do_little(rendered: Rendered) -> None:
    """No rights to gain, nothing of the system to write; devices and homes only where they are needed."""
    units = _units(rendered)
    services = {name: unit for name, unit in units.items() if name.endswith(".service") and "models" not in name}
    assert len(services) == 4
    for name, unit in services.items():
        for key, value in HARDENING.items():
            if name != "llm-gateway.service" or key != "CapabilityBoundingSet":
                assert _values(unit, key) == [value], name
    assert _values(units["llm-chat-0.service"], "PrivateDevices") == []
    assert _values(units["llm-small-0.service"], "PrivateDevices") == ["yes"]
    assert _values(units["llm-small-0.service"], "ProtectHome") == ["read-only"]
    assert _values(units["llm-gateway.service"], "CapabilityBoundingSet") == ["CAP_NET_BIND_SERVICE"]
    assert _values(units["llm-gateway.service"], "AmbientCapabilities") == ["CAP_NET_BIND_SERVICE"]


def test_the_weights_are_not_hidden_by_the_gateways_state(rendered: Rendered) -> None:
    """A dynamic user's state folder is closed to others: the models' folder must not lie in it."""
    (state,) = _values(_units(rendered)["llm-gateway.service"], "StateDirectory")
    (cache,) = _values(_units(rendered)["llm-models.service"], "Environment")
    assert not cache.partition("=")[2].startswith(f"/var/lib/{state}/")


def test_ports_that_meet_are_refused(tmp_path: Path) -> None:
    """A declared port must not meet one that is derived from another pool's."""
    path = tmp_path / "headrace.yaml"
    path.write_text(
        "models: {a: {source: file:/srv/a}}\npools:\n"
        "  one: {model: a, engine: vllm, port: 30000, telemetry: {kv_events: true}}\n"
        "  two: {model: a, engine: vllm, port: 40000}\n"
    )
    request, _ = make_request(path, environ={})
    rendered = render_systemd(request)
    assert [str(note) for note in rendered.errors] == [
        "error: pools.two.port needs 40000 (http), which one-0 has. Give each pool a port of its own"
    ]
    assert rendered.files == ()


@pytest.mark.parametrize("path", sorted((GOLDEN / "systemd").iterdir()), ids=lambda path: path.stem)
def test_goldens_hold_only_what_systemd_knows(path: Path) -> None:
    """Every line is a section, a comment or KEY=VALUE."""
    text = path.read_text()
    if text.startswith("refused"):
        return
    for part in text.split("# ---- ")[1:]:
        name, _, unit = part.partition("\n")
        if name.startswith("etc/systemd/"):
            for line in unit.replace("\\\n", " ").splitlines():
                assert not line or re.fullmatch(r"\[[A-Z][a-z]+\]|#.*|[A-Z][A-Za-z]+=.*", line), line
