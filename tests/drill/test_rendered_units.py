"""What is rendered for systemd runs: each unit's own command, started here in systemd's place."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.drill.instance import Instance
from tests.harness.ports import free_port

from headrace.engines.simulated.text import expected_text
from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.targets import Target, render

HIGHEST_PORT = 45000
"""A declared port leaves room for those that are derived from it."""

DECLARATION = """\
version: 1
gateway: {{listen: "127.0.0.1:{listen}", control: "127.0.0.1:{control}", drain_s: 5}}
models:
  tiny: {{source: "file:model", context_tokens: 512, chat_template: "{{{{ messages }}}}"}}
pools:
  chat:
    model: tiny
    engine: vllm
    port: {port}
    replicas: 2
    stop_s: 5
    runtime: {{command: {program}, device: cpu, env: {{NOTE: "100% of $HOME"}}}}
"""


def _words(unit: str, key: str) -> list[list[str]]:
    """Return the words of each `key=` line, as systemd splits them."""
    lines = [line for line in unit.replace("\\\n", " ").splitlines() if line.startswith(f"{key}=")]
    texts = [line.partition("=")[2].replace("%%", "%") for line in lines]
    return [shlex.split(text.replace("$$", "$") if key == "ExecStart" else text) for text in texts]


def test_the_rendered_units_serve(tmp_path: Path) -> None:
    """Two replicas and the gateway, started as their units say, answer a request; the gateway needs nothing else."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    instance = Instance(tmp_path)
    port = next(found for found in iter(free_port, None) if found < HIGHEST_PORT)
    program = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", "vllm", "--step-ms", "2", "--"]
    text = DECLARATION.format(
        listen=instance.port, control=instance.control_port, port=port, program=json.dumps(program)
    )
    instance.config.write_text(text)
    request, _ = make_request(instance.config, environ={})
    rendered = render(Target.SYSTEMD, request)
    files = {file.path: file.text for file in rendered.files}
    instance.config.write_text(files["etc/headrace/headrace.yaml"])
    engines: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(2):
            unit = files[f"etc/systemd/system/headrace-chat-{number}.service"]
            (argv,) = _words(unit, "ExecStart")
            env = dict(word.split("=", 1) for words in _words(unit, "Environment") for word in words)
            assert env["NOTE"] == "100% of $HOME"
            template = f"/etc/headrace/launch/chat-{number}/chat_template.jinja"
            assert argv[argv.index("--chat-template") + 1] == template
            assert files[template.lstrip("/")] == "{{ messages }}"
            argv = [re.sub("^/etc/headrace/", f"{tmp_path}/", word) for word in argv]
            engines.append(subprocess.Popen(argv, env={**os.environ, **env, "HOME": str(tmp_path)}, cwd=tmp_path))
        instance.up()
        status, body = instance.ask(max_tokens=7)
        assert status == 200, body
        said = json.loads(body)["choices"][0]["message"]["content"]
        assert said == expected_text("tiny", [{"role": "user", "content": "hi"}], 7)
        assert instance.run("down").returncode == 0
    finally:
        for engine in engines:
            engine.terminate()
            engine.wait(timeout=20)
        instance.end()
