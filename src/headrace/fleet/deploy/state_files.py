"""Which instance owns a state folder: an flock, and a file that says who runs here and how to reach it."""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from headrace.domain.operator_error import OperatorError
from headrace.domain.undecodable import UNDECODABLE
from headrace.fleet.deploy.process_identity import ProcessIdentity, own_identity
from headrace.fleet.deploy.warden_state import write_json_atomically
from headrace.settings import Settings


class AlreadyRunningError(OperatorError):
    """Another supervisor owns the state folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFile:
    """run/supervisor.json: the running supervisor. Read by `headrace status`, by wardens, by the next supervisor."""

    process: ProcessIdentity
    version: str
    started_at: float
    config_file: str | None
    """None: the built-in declaration."""
    on_supervisor_loss: Literal["stop", "keep"]
    inference_url: str
    control_url: str
    declaration_digest: str
    """SHA-256 of the declaration in force, to tell whether a file has changed since."""
    arguments: tuple[str, ...] | None = None
    """What it was told to run, as arguments of `python -m headrace.wiring`; None: an older version wrote this."""


def write_supervisor_file(settings: Settings, content: SupervisorFile) -> None:
    document = cast("dict[str, Any]", msgspec.to_builtins(content))
    document["process"] = content.process._asdict()
    write_json_atomically(settings.supervisor_file, document)


def find_supervisor(settings: Settings) -> SupervisorFile | None:
    """Return the supervisor that runs on this state folder; None where there is none (a stale file counts as none)."""
    found = read_supervisor_file(settings)
    return found if found is not None and found.process.is_alive else None


def read_supervisor_file(settings: Settings) -> SupervisorFile | None:
    """Read the file, whoever wrote it and whether or not that process still lives."""
    try:
        document = cast("dict[str, Any]", msgspec.json.decode(settings.supervisor_file.read_bytes()))
        process = ProcessIdentity(**document.pop("process"))
        arguments = document.pop("arguments", None)
        return SupervisorFile(process=process, arguments=None if arguments is None else tuple(arguments), **document)
    except (*UNDECODABLE, OSError, TypeError, KeyError, AttributeError):
        return None


def prepare_folders(settings: Settings) -> None:
    """Make the state folder and its parts, for this user alone."""
    check_socket_length(settings)
    try:
        for folder in (settings.state_dir, settings.run_dir, settings.log_dir, settings.journal_dir, settings.slot_dir):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.state_dir.chmod(0o700)
    except OSError as error:
        raise OperatorError(
            f"the state folder cannot be used: {error.filename}: {error.strerror}",
            hint="Set HEADRACE_STATE_DIR to a folder that this user can write to.",
        ) from error


def lock_state(settings: Settings, inherited_fd: int | None = None) -> int:
    """Own the state folder for the life of this process; the answer is the lock's file descriptor.

    Raises: AlreadyRunningError names the owner.
    """
    if inherited_fd is not None:
        return inherited_fd
    path = settings.run_dir / "supervisor.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise AlreadyRunningError(
            f"another headrace (pid {owner or 'unknown'}) runs on {settings.state_dir}",
            hint="Use `headrace status` and `headrace reload`, or give this one its own HEADRACE_STATE_DIR.",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{own_identity().pid}\n".encode(), 0)
    return descriptor


def engine_state_path(settings: Settings, replica: str) -> Path:
    """Where the warden of `<pool>-<n>` writes; pool names may hold characters that file names must not."""
    return settings.run_dir / f"engine-{file_stem(replica)}.json"


def engine_log_path(settings: Settings, replica: str) -> Path:
    return settings.log_dir / f"engine-{file_stem(replica)}.log"


def file_stem(name: str) -> str:
    """Make a name fit for a file, one to one: `/`, `:`, `@` and `%` become %XX."""
    return "".join(char if char.isalnum() or char in "._-" else f"%{ord(char):02x}" for char in name)


def check_socket_length(settings: Settings) -> None:
    """Refuse a folder whose sockets would have too long a path. Raises: OperatorError."""
    longest = str(settings.worker_socket(999999))
    if len(longest.encode()) > 107:
        raise OperatorError(
            f"the state folder's path is too long for Unix sockets ({len(longest)} of 107 characters): {longest}",
            hint="Set HEADRACE_STATE_DIR to a shorter path.",
        )
