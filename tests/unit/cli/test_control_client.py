"""Verbs and an instance that starts, is replaced or dies: what they wait for, and what they say."""

import contextlib
import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.cli.control_client import ControlClient, NotRunningError
from headrace.control_api.answers import answer_json
from headrace.control_api.operations import InstanceStatus, LedgerSummary
from headrace.domain.operator_error import OperatorError, UnknownNameError
from headrace.fleet.deploy.process_identity import own_identity
from headrace.fleet.deploy.state_files import SupervisorFile, lock_state, prepare_folders, write_supervisor_file
from headrace.settings import Settings, load_settings

LEDGER = LedgerSummary(
    is_running=True, waiting_records=0, waiting_bytes=0, lag_s=None, dropped=0, rows=0, error=None
)  # fmt: skip
STATUS = InstanceStatus(
    version="1", pid=1, started_at=0.0, config_file=None, inference_url="", control_url="", plan_revision=1,
    is_ready=True, reason="ready", models=(), replicas=(), endpoints=(), workers=(), ledger=LEDGER,
)  # fmt: skip


class Answers(http.server.BaseHTTPRequestHandler):
    """The control API, as far as `status` needs it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = bytes(answer_json("status", STATUS).body)
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        is_known = "nope" not in self.path
        body = b'{"error": {"message": "the gateway refused it"}}'
        self.send_response(409 if is_known else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass

    def address_string(self) -> str:
        return "unix"


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Kept connections are cut at its end, as the end of a process does."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.open: list[socket.socket] = []
        super().__init__(str(path), Answers)

    def process_request(self, request, client_address) -> None:
        self.open.append(request)
        super().process_request(request, client_address)


@contextmanager
def serving(settings: Settings) -> Iterator[None]:
    server = UnixServer(settings.control_socket)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        for connection in server.open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        server.server_close()
        settings.control_socket.unlink()


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """A state folder whose supervisor, this process, lives."""
    made = load_settings({"HEADRACE_STATE_DIR": str(tmp_path / "s"), "HOME": str(tmp_path)})
    prepare_folders(made)
    lock = lock_state(made, None)
    write_supervisor_file(
        made,
        SupervisorFile(
            process=own_identity(), version="1", started_at=0.0, config_file=None, on_supervisor_loss="stop",
            inference_url="", control_url="", declaration_digest="",
        ),
    )  # fmt: skip
    yield made
    os.close(lock)


def test_a_running_instance_is_asked_again_and_again(settings: Settings) -> None:
    """One client asks as often as it likes; an error's own words are shown."""
    with serving(settings), ControlClient(settings) as client:
        assert [client.status() for _ in range(3)] == [STATUS] * 3
        with pytest.raises(OperatorError, match=r"^the gateway refused it$"):
            client.reload(is_dry_run=False, is_upgrade=False)
        assert client.status() == STATUS


def test_a_supervisor_that_does_not_listen_yet_is_waited_for(settings: Settings) -> None:
    """While headrace replaces itself its socket is closed for a moment: `status` waits instead of failing."""
    answers: list[InstanceStatus] = []
    with ControlClient(settings) as client:
        assert client.try_status() is None, "asked for what there is now"
        waiting = threading.Thread(target=lambda: answers.append(client.status()))
        waiting.start()
        with serving(settings):
            waiting.join(20)
            assert answers == [STATUS]


def test_a_connection_that_an_upgrade_closed_is_made_anew(settings: Settings) -> None:
    """`status --watch` goes on over an upgrade."""
    with ControlClient(settings) as client:
        for _ in range(2):
            with serving(settings):
                assert client.status() == STATUS


def test_nothing_running_is_said_at_once(settings: Settings) -> None:
    """A supervisor that is gone is not waited for, and no socket is left open by trying."""
    settings.supervisor_file.unlink()
    with ControlClient(settings) as client:
        with pytest.raises(NotRunningError, match="headrace up"):
            client.status()
        assert client.try_announce_callers() is False


def test_a_refused_connection_leaks_no_socket(settings: Settings) -> None:
    """A path without a listener: nothing is open afterwards."""
    before = len(os.listdir("/proc/self/fd"))
    with ControlClient(settings) as client:
        for _ in range(20):
            assert client.try_status() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_name_that_the_instance_does_not_have_is_wrong_usage(settings: Settings) -> None:
    """The command exits with 2; another refusal is a failure."""
    with serving(settings), ControlClient(settings) as client:
        with pytest.raises(UnknownNameError, match="refused"):
            client.restart("nope/0")
        with pytest.raises(OperatorError) as refused:
            client.reload(is_dry_run=False, is_upgrade=False)
    assert not isinstance(refused.value, UnknownNameError)
