"""How the supervisor starts the projection's process, and the loop that runs in it."""

import contextlib
import gc
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from headrace.database.migrate import migrate
from headrace.database.url import DatabaseError, DatabaseUrl, parse_database_url
from headrace.domain.clock import SystemClock
from headrace.ledger.backlog import write_backlog
from headrace.ledger.ingest.contract import DatabaseUnavailableError, Ingest
from headrace.ledger.ingest.sqlite import SqliteIngest
from headrace.ledger.projector import Progress, Projector
from headrace.whole_file import try_lock

DATABASE_VARIABLE = "HEADRACE_LEDGER_DATABASE"
"""Environment variable that carries the URL: it may hold a password, which a command line would show to everybody."""

PASS_INTERVAL_S = 0.5
BACKOFF_MAX_S = 10.0
NICENESS = 10
"""Added once the first pass is over: where all cores are busy, requests go before rows, of which a tenth of a core
still writes ten thousands a second."""

AUTOGROUP = Path("/proc/self/autogroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorLaunch:
    """Command line and added environment of the projection's process."""

    argv: tuple[str, ...]
    env: dict[str, str]


def projector_launch(
    journal_dir: Path, backlog_file: Path, database_url: str, *, retention_days: int | None = None
) -> ProjectorLaunch:
    """How this process starts the projection. It ends with SIGTERM after a last pass, and when this process is gone."""
    retention = () if retention_days is None else (str(retention_days),)
    argv = (sys.executable, "-m", "headrace.ledger", str(journal_dir), str(backlog_file), str(os.getpid()))
    return ProjectorLaunch(
        argv=(*argv, *retention),
        env={DATABASE_VARIABLE: database_url},
    )


def open_ingest(url: DatabaseUrl) -> Ingest:
    """Connect to `url`, bringing its schema up to date first.

    Raises: DatabaseUnavailableError.
    """
    try:
        migrate(url)
    except DatabaseError as error:
        raise DatabaseUnavailableError(str(error)) from error
    if url.sqlite_path is not None:
        return SqliteIngest(url.sqlite_path)
    from headrace.ledger.ingest.postgres import PostgresIngest  # psycopg is an extra

    return PostgresIngest(url)


def run_projector(
    journal_dir: Path, backlog_file: Path, parent: int, database_url: str, retention_days: int | None
) -> None:
    """Project until SIGTERM, SIGINT or the end of process `parent`; wait while another projects the same journal."""
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    # Rows are lists without cycles, freed by reference count: looking for cycles among them is a tenth of a row's cost.
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    url = parse_database_url(database_url)
    journal_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(journal_dir / ".projector.lock", "ab") as lock:
        while not try_lock(lock.fileno()):
            if stopping.wait(PASS_INTERVAL_S) or os.getppid() != parent:
                return
        projector = Projector(journal_dir, lambda: open_ingest(url), SystemClock(), retention_days=retention_days)
        _loop(projector, backlog_file, stopping, parent)
        projector.close()


def step_back() -> None:
    """Lower this process's share of a busy core, for good.

    Linux may give each session a share of its own (autogroups); niceness then counts within the session alone. The
    supervisor starts this process in one of its own, whose share is lowered with it.
    """
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # not Linux, or built without them
            AUTOGROUP.write_text(str(NICENESS))


def _loop(projector: Projector, backlog_file: Path, stopping: threading.Event, parent: int) -> None:
    pause_s, is_first = PASS_INTERVAL_S, True
    while True:
        is_last = stopping.is_set() or os.getppid() != parent
        progress = projector.project()
        write_backlog(backlog_file, projector.measure_backlog())
        if is_last:
            return
        if is_first:
            step_back()
            is_first = False
        pause_s = min(2 * pause_s, BACKOFF_MAX_S) if progress is Progress.BLOCKED else PASS_INTERVAL_S
        if progress is not Progress.MORE:
            stopping.wait(pause_s)
