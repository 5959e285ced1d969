"""A simulated engine as a process: the line it prints, and how it ends."""

import signal
import subprocess
import sys

import httpx
import pytest

COMMAND = [sys.executable, "-m", "headrace", "sim", "engine", "--dialect", "vllm", "--step-ms", "2"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_where_it_says_and_ends_cleanly(number: signal.Signals):
    """One line with the URL, at which it answers at once; SIGTERM and Ctrl-C end it with 0 and nothing on stderr."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().split(" ")[0]
        assert httpx.get(f"{url}/health", timeout=10).status_code == 200
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_a_port_that_is_taken_is_said():
    """A second engine on the same port fails with a sentence, not with a traceback."""
    first = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        port = first.stdout.readline().split(" ")[0].rpartition(":")[2]
        second = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=60)
        assert second.returncode == 1
        assert "another process has that port" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        first.terminate()
        first.wait(20)
        if first.stdout is not None:
            first.stdout.close()
