"""Installs each peer, in a pinned version, into its own environment below `.cache/peers`."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.native import CACHE
from benchmarks.problem import BenchmarkError

REFUSED = {"litellm": ("1.107.0",)}
"""Releases reported compromised: never installed, whatever a pin says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One package of PyPI in one version."""

    package: str
    version: str
    extra: str = ""

    def __str__(self) -> str:
        extra = f"[{self.extra}]" if self.extra else ""
        return f"{self.package}{extra}=={self.version}"


def install_peer(requirement: Requirement) -> Path:
    """The folder of the peer's programs; installs on first use."""
    if requirement.version in REFUSED.get(requirement.package, ()):
        raise BenchmarkError(f"{requirement} is reported compromised and is not installed")
    venv = CACHE / "peers" / f"{requirement.package}-{requirement.version}"
    ready = venv / ".ready"
    if not ready.exists():
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(venv)], requirement)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, str(requirement)], requirement)
        ready.touch()
    return venv / "bin"


def find_nginx() -> str:
    """nginx from PATH; on Debian as root it is installed."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchmarkError("nginx is not on PATH, and can be installed here only by root on Debian")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", "nginx-light"]):
        done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise BenchmarkError(f"apt-get {arguments[0]} failed, so nginx is missing: {done.stderr.strip()[-300:]}")
    found = shutil.which("nginx", path="/usr/sbin:/usr/bin")
    if not found:
        raise BenchmarkError("nginx was installed but is not found in /usr/sbin")
    return found


def nginx_version(program: str) -> str:
    told = subprocess.run([program, "-v"], capture_output=True, text=True).stderr
    return told.rpartition("/")[2].strip() or "unknown"


def _run(command: list[str], requirement: Requirement) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError(f"{requirement} cannot be installed: {(done.stderr or done.stdout).strip()[-400:]}")
