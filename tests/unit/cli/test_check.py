"""headrace check."""

import json
import socket
from pathlib import Path

from headrace.fleet.deploy.ports import is_port_free

POOL = "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: vllm, endpoints: ['http://127.0.0.1:1']}}\n"
ANY_PORTS = "gateway: {listen: '127.0.0.1:0', control: '127.0.0.1:0'}\n"
GOOD = POOL + ANY_PORTS

GPU_POOL = (
    f"version: 1\nmodels: {{m: {{source: 'hf:Qwen/Qwen3-8B@{'a' * 40}'}}}}\n"
    "pools: {p: {model: m, engine: vllm, port: PORT}}\n"
)


def test_a_sound_file_exits_with_0(run, tmp_path: Path) -> None:
    """Without a file named, ./headrace.yaml is checked."""
    (tmp_path / "headrace.yaml").write_text(GOOD)
    ran = run("check", "--offline")
    assert ran.code == 0
    assert ran.out.startswith(f"{tmp_path / 'headrace.yaml'}: nothing to complain about\n")
    assert "instance can start: 0 failed, 0 warnings, 3 ok" in ran.out
    ran = run("check", "--elsewhere")
    assert (ran.code, ran.out) == (0, f"{tmp_path / 'headrace.yaml'}: nothing to complain about\n")


def test_without_any_file_the_built_in_declaration_is_checked(run) -> None:
    """What `headrace up` would use is what is checked."""
    assert "built-in" in run("check").out


def test_problems_exit_with_3_and_name_their_line(run, tmp_path: Path) -> None:
    """A build can tell a broken declaration from a failed command."""
    (tmp_path / "x.yaml").write_text(GOOD + "gatway: {}\n")
    ran = run("check", "--config", "x.yaml")
    assert ran.code == 3
    assert ran.out.splitlines()[0] == "x.yaml:5:1: error: gatway: there is no such key"
    assert run("check", "-c", "nowhere.yaml").code == 3


def test_warnings_alone_exit_with_0(run, tmp_path: Path) -> None:
    """Doubts are said but stop nothing."""
    (tmp_path / "x.yaml").write_text(POOL + "gateway: {listen: '0.0.0.0:7070'}\n")
    ran = run("check", "-c", "x.yaml", "--set", "gateway.listen=0.0.0.0:0", "--set", "gateway.control=127.0.0.1:0")
    assert ran.code == 0
    assert "warning: gateway.listen" in ran.out
    assert "x.yaml: 0 errors, 1 warning\n" in ran.out


def test_elsewhere_does_not_need_the_secrets(run, tmp_path: Path) -> None:
    """A pipeline checks a declaration without holding its secrets."""
    (tmp_path / "x.yaml").write_text(GOOD.replace("]}}", "], credentials: {bearer: '${env:HR_NOT_SET}'}}}"))
    assert run("check", "-c", "x.yaml").code == 3
    assert run("check", "-c", "x.yaml", "--elsewhere").code == 0


def test_json_lists_the_problems(run, tmp_path: Path) -> None:
    """Programs get each problem's place and text."""
    (tmp_path / "x.yaml").write_text(GOOD + "gatway: {}\n")
    ran = run("check", "-c", "x.yaml", "--json")
    told = json.loads(ran.out)
    assert ran.code == 3
    assert told["schema"] == "headrace/check/v1"
    assert (told["data"]["is_valid"], told["data"]["errors"], told["data"]["warnings"]) == (False, 1, 0)
    (problem,) = told["data"]["problems"]
    assert (problem["line"], problem["key"], problem["severity"]) == (5, "gatway", "error")


def test_a_machine_without_a_gpu_says_so_and_checks_the_rest(run, tmp_path: Path) -> None:
    """A pool for GPUs can be checked on a laptop: what needs a GPU is a warning there, an occupied port is not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        text = GPU_POOL.replace("PORT", str(min(taken, 45_535)))  # the highest port that a pool may declare
        (tmp_path / "x.yaml").write_text(text)
        ran = run("check", "-c", "x.yaml", "--json", "--set", "pools.p.runtime.device=cpu")
        (pool,) = json.loads(ran.out)["data"]["preflight"]["pools"]
        codes = {finding["code"]: finding["level"] for finding in pool["findings"]}
        assert codes["gpu"] == "ok"
        assert taken > 45_535 or (ran.code, codes["port"]) == (3, "fail")
        assert run("check", "-c", "x.yaml", "--elsewhere").code == 0


def test_the_built_in_pool_is_checked_and_passes(run) -> None:
    """On a fresh machine nothing stands in the way of `headrace up`."""
    ran = run("check")
    assert ran.code == (0 if is_port_free("127.0.0.1", 7070) and is_port_free("127.0.0.1", 7071) else 3)
    assert "pool default (llamacpp, smollm2-135m) can run" in ran.out


def test_the_capture_script_names_the_models(run, tmp_path: Path) -> None:
    """It is printed for the declaration at hand, and for sh."""
    (tmp_path / "x.yaml").write_text(GPU_POOL.replace("PORT", "9000"))
    ran = run("check", "-c", "x.yaml", "--capture-script")
    assert ran.out.startswith("#!/bin/sh")
    assert "Qwen--Qwen3-8B" in ran.out


def test_a_capture_that_is_no_folder_fails(run) -> None:
    """The command says how to make one."""
    ran = run("check", "--from-capture", "nowhere")
    assert ran.code == 1
    assert "--capture-script" in ran.err


HANDING = (
    "version: 1\nmodels: {m: {}}\npools:\n"
    "  p: {model: m, engine: vllm, endpoints: ['http://127.0.0.1:1'], disaggregation: {role: prefill}}\n"
    "  d: {model: m, engine: vllm, endpoints: ['http://127.0.0.1:2'], disaggregation: {role: decode}}\n"
)


def test_engines_that_hand_prompts_over_are_asked_what_they_are(run, tmp_path: Path) -> None:
    """Those that do not answer are not measured, which is no problem; for another machine nobody is asked."""
    (tmp_path / "x.yaml").write_text(HANDING)
    ran = run("check", "-c", "x.yaml")
    told = "hand-overs   m: of its pairs 0 fit, 0 do not (kv_layout_mismatch), 1 not measured"
    assert (ran.code, ran.out.splitlines()[-1]) == (0, told)
    assert "hand-overs" not in run("check", "-c", "x.yaml", "--elsewhere").out


def test_what_up_would_fail_on_is_found(run, tmp_path: Path) -> None:
    """A certificate that does not load, an engine that is not here, a taken address: each with its remedy, exit 3."""
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("garbage")
    (tmp_path / "model").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        (tmp_path / "x.yaml").write_text(
            "version: 1\nmodels: {m: {source: 'file:model'}}\n"
            "pools: {p: {model: m, engine: vllm, runtime: {python: /nowhere/python, device: cpu}}}\n"
            f"gateway: {{listen: '127.0.0.1:{taken}', control: '127.0.0.1:0', tls: {{certificate: tls.crt, "
            "key: tls.key}}\n"
        )
        ran = run("check", "-c", "x.yaml")
    assert ran.code == 3
    assert "x.yaml: sound" in ran.out
    assert "instance cannot start: 2 failed" in ran.out
    assert f"fail  listen: gateway.listen: cannot listen on 127.0.0.1:{taken}: Address already in use" in ran.out
    assert "fail  tls: gateway.tls: " in ran.out
    assert "fail  program: /nowhere/python is not here, or cannot be executed" in ran.out
    assert run("check", "-c", "x.yaml", "--elsewhere").code == 0


def test_engines_elsewhere_are_asked_and_never_more_than_a_warning(run, tmp_path: Path) -> None:
    """One that is away is named; --offline asks none."""
    (tmp_path / "x.yaml").write_text(GOOD)
    ran = run("check", "-c", "x.yaml")
    assert ran.code == 0
    assert "warn  endpoint: pools.p.endpoints[0] http://127.0.0.1:1: " in ran.out
    assert "endpoint" not in run("check", "-c", "x.yaml", "--offline").out
