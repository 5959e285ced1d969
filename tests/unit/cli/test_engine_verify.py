"""headrace engine verify, against programs that print a help and servers that show a page."""

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.settings import load_settings

CAPTURES = Path(__file__).parents[2] / "captures"

PROGRAM = """\
import argparse, sys
parser = argparse.ArgumentParser()
for flag in {flags!r}:
    parser.add_argument(flag, help="Nothing of --interest.")
parser.parse_args(sys.argv[2:] if sys.argv[1:2] == ["serve"] else None)
"""


def flags_of(name: str) -> list[str]:
    return [line for line in (CAPTURES / name).read_text().splitlines() if line.startswith("--") and line != "--help"]


def write_program(folder: Path, flags: list[str]) -> str:
    """A real program with these flags; returns its command line."""
    path = folder / "engine.py"
    path.write_text(PROGRAM.format(flags=flags))
    return f"{sys.executable} {path}"


@dataclass
class Page:
    """A server that shows one page, and what was asked of it."""

    url: str
    asked: list[str] = field(default_factory=list[str])


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    """Serve `request.param`, a mapping of path to text; other paths are 404."""
    texts: dict[str, str] = request.param
    shown = Page(url="")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown.asked.append(self.path)
            text = texts.get(self.path)
            self.send_response(200 if text is not None else 404)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *said: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shown.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield shown
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page_of(name: str) -> str:
    lines = [line.split() for line in (CAPTURES / name).read_text().splitlines() if line and not line.startswith("#")]
    return "".join(f"# TYPE {metric} {kind}\n{metric} 0\n" for metric, kind in lines)


def test_an_engine_with_every_flag_has_no_difference(run, tmp_path: Path) -> None:
    """Exit 0, and how many flags were looked up where."""
    command = write_program(tmp_path, flags_of("vllm/serve_flags.txt"))
    ran = run("engine", "verify", "vllm", "--command", command)
    assert ran.code == 0, ran.err
    assert "no difference" in ran.out
    assert "metrics: not looked at" in ran.out


def test_a_flag_that_the_engine_lost_is_named_with_the_one_it_has_instead(run, tmp_path: Path) -> None:
    """Exit 3, and the nearest name."""
    flags = [flag for flag in flags_of("vllm/serve_flags.txt") if flag != "--max-model-len"]
    command = write_program(tmp_path, [*flags, "--max-model-length"])
    ran = run("engine", "verify", "vllm", "--command", command, "--json")
    assert ran.code == 3
    told = json.loads(ran.out)
    assert told["schema"] == "headrace/engine-verify/v1"
    (finding,) = [finding for finding in told["data"]["flags"] if finding["state"] != "present"]
    assert (finding["flag"], finding["state"], finding["nearest"]) == (
        "--max-model-len",
        "renamed",
        "--max-model-length",
    )


def test_a_saved_help_and_a_saved_page_do_as_well(run, tmp_path: Path) -> None:
    """Nothing has to run: files from another machine are compared."""
    (tmp_path / "help.txt").write_text(
        "options:\n" + "".join(f"  {flag} X\n" for flag in flags_of("vllm/serve_flags.txt"))
    )
    (tmp_path / "page.txt").write_text(page_of("vllm/metric_names.txt"))
    ran = run("engine", "verify", "vllm", "--help-file", "help.txt", "--metrics-file", "page.txt")
    assert ran.code == 0, ran.out
    assert "present" in ran.out


@pytest.mark.parametrize(
    "page", [{"/metrics": page_of("sglang/metric_names.txt"), "/server_info": '{"version": "0.5.23"}'}], indirect=True
)
def test_a_running_engine_is_asked_for_its_page_and_version(run, page: Page) -> None:
    """Another version than the one that was asked for is a difference."""
    assert run("engine", "verify", "sglang", "--url", page.url, "--version", "0.5.23").code == 0
    ran = run("engine", "verify", "sglang", "--url", page.url, "--version", "0.4.6")
    assert ran.code == 3
    assert "--version 0.4.6 was asked for, and this is 0.5.23" in ran.out


@pytest.mark.parametrize(
    "page",
    [{"/prometheus/metrics": 'trtllm_kv_cache_config_info{page_size="32"} 1\n', "/metrics": "[]"}],
    indirect=True,
)
def test_the_page_that_reading_empties_is_not_read(run, page: Page) -> None:
    """TensorRT-LLM's /metrics is left to whoever else reads it."""
    assert run("engine", "verify", "tensorrt-llm", "--url", page.url).code == 0
    assert "/prometheus/metrics" in page.asked
    assert "/metrics" not in page.asked


@pytest.mark.parametrize("page", [{"/metrics": "somebody_elses 1\n"}], indirect=True)
def test_a_page_of_something_else_is_no_verification(run, page: Page) -> None:
    """Exit 1, and how to turn the metrics on."""
    ran = run("engine", "verify", "sglang", "--url", page.url)
    assert ran.code == 1
    assert "none of this engine's metrics" in ran.err
    assert "--enable-metrics" in ran.err


def test_where_nothing_answers_nothing_is_claimed(run) -> None:
    """Exit 1 with the address."""
    ran = run("engine", "verify", "vllm", "--url", "http://127.0.0.1:9")
    assert ran.code == 1
    assert "http://127.0.0.1:9/metrics does not answer" in ran.err


def test_a_program_that_fails_is_quoted(run, tmp_path: Path) -> None:
    """Exit 1 with the last lines that it said."""
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no GPU devices found on the node')\n")
    ran = run("engine", "verify", "tensorrt-llm", "--command", f"{sys.executable} {broken}")
    assert ran.code == 1
    assert "no GPU devices found on the node" in ran.err


@pytest.mark.parametrize(("command", "said"), [("'unclosed", "no command line"), ("", "is empty"), (" ", "is empty")])
def test_a_command_that_is_none_is_said(run, command: str, said: str) -> None:
    """A slip in quoting is the operator's to mend, and not called a bug of headrace."""
    ran = run("engine", "verify", "vllm", "--command", command)
    assert ran.code == 1
    assert said in ran.err
    assert "bug" not in ran.err


def test_an_engine_that_is_not_here_says_how_to_name_it(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit 1, and the three ways to point at one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("engine", "verify", "tensorrt-llm")
    assert ran.code == 1
    assert all(way in ran.err for way in ("--python", "--command", "--url"))


def test_nothing_is_known_of_a_server_of_openais_api(run) -> None:
    """There is nothing to compare."""
    assert run("engine", "verify", "openai").code == 1


def test_a_narrow_screen_gets_lines_instead_of_a_table(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 columns are enough to read every finding."""
    monkeypatch.setenv("COLUMNS", "40")
    command = write_program(tmp_path, ["--host"])
    ran = run("engine", "verify", "vllm", "--command", command)
    assert ran.code == 3
    assert "name --max-model-len" in ran.out
    assert all(len(line) <= 40 for line in ran.out.splitlines())


def test_flags_that_a_declaration_passes_on_are_looked_up_too(run, tmp_path: Path) -> None:
    """extra_args of the engine's pools; a flag that is gone is explained."""
    (tmp_path / "headrace.yaml").write_text(
        "version: 1\n"
        "models: {m: {source: hf:a/b@0123456789abcdef0123456789abcdef01234567, context_tokens: 256}}\n"
        "pools:\n"
        "  mine: {model: m, engine: vllm, replicas: 1, extra_args: [--swap-space=4, --enforce-eager]}\n"
        "  other: {model: m, engine: sglang, replicas: 1, extra_args: [--never-looked-up]}\n"
    )
    command = write_program(tmp_path, flags_of("vllm/serve_flags.txt"))
    ran = run("engine", "verify", "vllm", "--command", command, "--config", "headrace.yaml", "--json")
    assert ran.code == 3, ran.err
    wrong = [finding for finding in json.loads(ran.out)["data"]["flags"] if finding["state"] != "present"]
    assert [(finding["flag"], finding["option"]) for finding in wrong] == [("--swap-space", "pools.mine.extra_args")]
    assert "gone since 0.24.0" in wrong[0]["note"]


@pytest.mark.engine
def test_the_embedded_engine_is_verified_out_of_the_box(
    run, monkeypatch: pytest.MonkeyPatch, real_cache_dir: str
) -> None:
    """Its package is asked for what headrace sets, and it runs for a moment so that its metrics are read."""
    monkeypatch.setenv("HEADRACE_CACHE_DIR", real_cache_dir)
    ran = run("engine", "verify", "llamacpp", "--json")
    assert ran.code == 0, ran.out + ran.err
    told = json.loads(ran.out)["data"]
    assert told["flags"] and told["metrics"]
    assert {finding["state"] for finding in (*told["flags"], *told["metrics"])} == {"present"}


@pytest.fixture
def real_cache_dir() -> str:
    """Where the bundled model is kept between runs; read before `run` points elsewhere."""
    return str(REAL_CACHE_DIR)


REAL_CACHE_DIR = load_settings().cache_dir
