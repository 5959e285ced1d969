"""How a gateway worker is started."""

import os
import socket
from pathlib import Path

import pytest

from headrace.fleet.deploy.process_watch import wait_gone
from headrace.fleet.deploy.worker_process import start_worker
from headrace.settings import load_settings

TELL = "import os, pathlib; pathlib.Path('{path}').write_text(os.environ['MALLOC_TRIM_THRESHOLD_'])"


@pytest.mark.parametrize("given", [None, "1234"])
async def test_a_worker_keeps_the_memory_of_bodies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    """It is told so by its environment, in which an operator's own value goes before."""
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    if given is not None:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", given)
    settings = load_settings({"HEADRACE_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)})
    settings.log_dir.mkdir(parents=True)
    told = tmp_path / "told"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        module = ("-c", TELL.format(path=told))
        worker = start_worker(settings, 0, listener.fileno(), os.getpid(), module=module)
        assert worker.process is not None
        await wait_gone(worker.process)
    assert told.read_text() == (given or "33554432")
