"""The projection of the journal into the database, as a child process that is kept alive."""

import asyncio
import os
from pathlib import Path

import structlog

from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.fleet.deploy.process_watch import end_process, spawn, wait_gone
from headrace.ledger.process import projector_launch
from headrace.settings import Settings

log = structlog.get_logger("headrace.supervisor")

RESTART_S = 2.0
STOP_S = 15.0
"""Bound of the last pass: what is not in the database by then is projected at the next start."""


def backlog_file(settings: Settings) -> Path:
    return settings.run_dir / "ledger.json"


class LedgerProcess:
    """Keeps `python -m headrace.ledger` running. Concurrency: one event loop."""

    def __init__(self, settings: Settings, database_url: str, retention_days: int | None) -> None:
        self._settings = settings
        self._launch = projector_launch(
            settings.journal_dir, backlog_file(settings), database_url, retention_days=retention_days
        )
        self._process: ProcessIdentity | None = None
        self.trouble: str | None = None
        """Why it does not run, where it has not said so itself."""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive

    async def run(self) -> None:
        """Start it again whenever it ends, until cancelled."""
        while True:
            path = self._settings.log_dir / "ledger.err"
            output = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._process = spawn(self._launch.argv, env={**os.environ, **self._launch.env}, output=output)
            finally:
                os.close(output)
            if self._process is not None:
                await wait_gone(self._process)
            self.trouble = "the ledger's process ended; it is started again"
            log.warning("ledger process ended", output=str(path))
            await asyncio.sleep(RESTART_S)

    async def stop(self) -> None:
        """Let it finish its last pass. Call after `run` was cancelled."""
        if self._process is not None:
            await end_process(self._process, STOP_S)
