"""What a warden knows of its engine, as a small JSON file that outlives both of them. Stdlib only.

Written by the warden at each change, atomically; read by the supervisor (this one or the next) and `headrace status`.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.whole_file import write_whole


class EngineEnd(NamedTuple):
    """How an engine's process ended."""

    at: float
    exit_code: int | None
    """None where a signal ended it, or it never started."""
    signal: int | None
    reason: str
    """In words, for `headrace status`."""
    last_lines: list[str]


class WardenState(NamedTuple):
    """One engine process and its warden."""

    warden: ProcessIdentity
    engine: ProcessIdentity | None
    """None where the engine could not be started."""
    port: int
    digest: str
    """SHA-256 of the command line and the environment added to it: another digest, another engine."""
    started_at: float
    end: EngineEnd | None


def write_json_atomically(path: Path, document: object) -> None:
    """Replace `path` whole, mode 0600."""
    write_whole(path, json.dumps(document))


def write_state(path: Path, state: WardenState) -> None:
    write_json_atomically(
        path,
        {
            "warden": state.warden._asdict(),
            "engine": state.engine._asdict() if state.engine else None,
            "port": state.port,
            "digest": state.digest,
            "started_at": state.started_at,
            "end": state.end._asdict() if state.end else None,
        },
    )


def find_state(path: Path) -> WardenState | None:
    """Read a state file; None where there is none or it is not one of ours."""
    try:
        document = cast("dict[str, Any]", json.loads(path.read_bytes()))
        return WardenState(
            warden=ProcessIdentity(**document["warden"]),
            engine=ProcessIdentity(**document["engine"]) if document["engine"] else None,
            port=int(document["port"]),
            digest=str(document["digest"]),
            started_at=float(document["started_at"]),
            end=EngineEnd(**document["end"]) if document["end"] else None,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
