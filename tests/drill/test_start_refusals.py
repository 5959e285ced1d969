"""What `headrace up` says where something it needs is not there; and gateways in front of gateways."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.drill.instance import Instance, wait_until
from tests.harness.ports import free_port


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path)
    yield made
    made.end()


def test_a_database_that_is_down_is_named(instance: Instance) -> None:
    """Without known keys nobody could be served: `up` ends, says which database and why, and leaves nothing."""
    port = free_port()
    url = f"postgresql+psycopg://headrace:${{env:DATABASE_PASSWORD}}@127.0.0.1:{port}/headrace"
    instance.environment["DATABASE_PASSWORD"] = "canary-password"
    instance.declaration["ledger"] = {"database": url}
    instance.write()

    done = instance.run("up", "--detach")

    said = done.stderr + done.stdout
    assert done.returncode == 1, said
    assert "Traceback" not in said
    assert str(port) in said
    assert "refused" in said
    assert "canary-password" not in said
    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


def test_an_instance_in_front_of_another(instance: Instance, tmp_path: Path) -> None:
    """headrace attaches to headrace with a bearer; callers of the second one use its own key."""
    instance.up()
    folder = tmp_path / "second"
    folder.mkdir()
    second = Instance(folder, FIRST_KEY=instance.key)
    try:
        first_url = f"http://127.0.0.1:{instance.port}"
        second.declaration["models"] = {"tiny": {}}
        credentials = {"bearer": "${env:FIRST_KEY}"}
        pool = {"model": "tiny", "engine": "openai", "endpoints": [first_url], "credentials": credentials}
        second.declaration["pools"] = {"chat": pool}
        second.write()
        second.up()

        assert second.call() == 200
        assert second.key != instance.key
        own_key, second.key = second.key, instance.key
        assert second.call() == 401, "the first one's key opens the first one only"
        second.key = own_key
        for path in second.state_dir.rglob("*"):
            if path.is_file():
                assert instance.key.encode() not in path.read_bytes(), path
        assert second.run("down").returncode == 0
    finally:
        second.end()


def test_an_endpoint_that_nobody_answers_is_named(instance: Instance) -> None:
    """`up --endpoint URL` needs no file; where nothing listens there, it says so and nothing is left."""
    instance.config.unlink()
    dead = f"http://127.0.0.1:{free_port()}"
    done = instance.run("up", "--detach", "--endpoint", dead)
    said = done.stderr + done.stdout
    assert done.returncode == 1
    assert dead in said
    assert "Traceback" not in said
    assert instance.processes() == {}


def test_up_again_shows_what_runs_and_does_not_take_it_for_another(instance: Instance) -> None:
    """The same command shows the running instance, that first; another file, or an engine elsewhere, is refused."""
    instance.up()
    again = instance.run("up")
    assert again.returncode == 0, again.stderr
    assert again.stdout.lstrip().startswith(f"headrace was running already, on {instance.config}\nheadrace is ready")
    instance.config.write_text(instance.config.read_text() + "# edited\n")
    assert f"{instance.config} has changed since: `headrace reload` applies it" in instance.run("up").stdout

    for words, other in (
        (("-c", "nope.yaml"), f"{instance.folder / 'nope.yaml'} (no such file)"),
        (("--endpoint", "http://127.0.0.1:9"), "the engine at http://127.0.0.1:9"),
    ):
        refused = instance.run("up", *words)
        assert refused.returncode == 1
        assert f"headrace runs already, on {instance.config}, not on {other}" in refused.stderr
        assert refused.stdout == ""
    assert instance.run("down").returncode == 0


@pytest.mark.parametrize("words", [("up", "--detach"), ("up",)])
def test_a_gateway_that_does_not_start_is_named(instance: Instance, words: tuple[str, ...]) -> None:
    """In the foreground and in the background, `up` says which worker ended, and the worker's own last words."""
    broken = instance.folder / "broken"
    broken.mkdir()
    (broken / "httptools.py").write_text("raise ImportError('a library is missing')\n")
    instance.environment["PYTHONPATH"] = str(broken)
    done = instance.run(*words)
    assert done.returncode == 1, done.stdout
    assert "gateway worker 1 did not start" in done.stderr
    assert "ImportError: a library is missing" in done.stderr
    assert "Traceback" not in done.stderr
    wait_until(lambda: instance.processes() == {}, "the end of all its processes")


def test_two_starts_at_once_do_not_take_each_others_words(instance: Instance) -> None:
    """One of them runs, the other says that one runs already; the output of the one that runs is kept whole."""
    instance.environment["STANDIN_LOAD_S"] = "1"
    both = [instance.begin("up", "--detach") for _ in range(2)]
    said = [process.communicate(timeout=60) for process in both]

    codes = [process.returncode for process in both]
    assert 0 in codes, said
    for process, (out, err) in zip(both, said, strict=True):
        assert "Traceback" not in out + err
        if process.returncode:
            assert "another headrace (pid" in err
    logs = instance.state_dir / "logs"
    assert [path.name for path in logs.iterdir() if path.name.startswith(("supervisor.err", ".supervisor.err"))] == [
        "supervisor.err"
    ]
    assert instance.run("down").returncode == 0


def test_a_full_disk_is_named(instance: Instance) -> None:
    """Where nothing can be written, `up` says so, though the supervisor's own words are lost with everything else."""
    (instance.state_dir / "logs").mkdir(parents=True)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "headrace.cli.main", "up", "--detach"],
        env=instance.environment,
        cwd=instance.folder,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert f"{instance.state_dir / 'logs'} cannot be written: File too large" in done.stderr
    wait_until(lambda: instance.processes() == {}, "the end of all its processes")
