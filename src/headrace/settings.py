"""What comes from the environment, not from headrace.yaml: where state and caches live.

Everything else an operator can set is in the declaration (docs/settings.md lists both).
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Paths of one headrace instance.

    Environment: `HEADRACE_STATE_DIR`, `HEADRACE_CACHE_DIR`; defaults follow the XDG base directory specification.
    """

    state_dir: Path
    """Everything this instance must remember. Two instances must not share it. Mode 0700."""
    cache_dir: Path
    """Downloaded and converted model files, addressed by SHA-256; may be shared and deleted."""

    @property
    def run_dir(self) -> Path:
        """Process state and Unix sockets."""
        return self.state_dir / "run"

    @property
    def log_dir(self) -> Path:
        return self.state_dir / "logs"

    @property
    def journal_dir(self) -> Path:
        """Segments of the append-only request journal."""
        return self.state_dir / "journal"

    @property
    def slot_dir(self) -> Path:
        """KV slots saved by llama.cpp."""
        return self.state_dir / "slots"

    @property
    def database_path(self) -> Path:
        """The default SQLite database."""
        return self.state_dir / "headrace.db"

    @property
    def control_socket(self) -> Path:
        """The control API for the local command line; mode 0600."""
        return self.run_dir / "control.sock"

    @property
    def leases_socket(self) -> Path:
        """Where gateway workers lease their shares of limits from the supervisor's coordinator; mode 0600."""
        return self.run_dir / "leases.sock"

    @property
    def batch_dir(self) -> Path:
        """Files and batches that callers have stored."""
        return self.state_dir / "batch"

    @property
    def batch_socket(self) -> Path:
        """Where the batch process answers for files and batches; mode 0600."""
        return self.run_dir / "batch.sock"

    @property
    def supervisor_file(self) -> Path:
        """JSON: pid, start time, URLs of the running supervisor."""
        return self.run_dir / "supervisor.json"

    def worker_socket(self, worker: int) -> Path:
        """Where gateway worker number `worker` listens for its supervisor."""
        return self.run_dir / f"gateway-{worker}.sock"

    def line_socket(self, worker: int) -> Path:
        """Where gateway worker number `worker` takes the lines of batches; mode 0600."""
        return self.run_dir / f"lines-{worker}.sock"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME", "~")).expanduser()
    state_home = Path(env.get("XDG_STATE_HOME") or home / ".local" / "state")
    cache_home = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    return Settings(
        state_dir=Path(env.get("HEADRACE_STATE_DIR") or state_home / "headrace").absolute(),
        cache_dir=Path(env.get("HEADRACE_CACHE_DIR") or cache_home / "headrace").absolute(),
    )


def user_name(uid: int) -> str:
    """The name of a user of this machine, or the number where it has none (in a container)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
