"""How the supervisor starts the batch process; apart, so that a supervisor loads nothing of it."""

import os
import sys

import msgspec

from headrace.declaration.batch_section import BatchPlan


def batch_argv(plan: BatchPlan, listen_fd: int) -> tuple[str, ...]:
    """Command line of the process; it ends with SIGTERM, and when this process is gone."""
    words = ("--listen-fd", str(listen_fd), "--supervisor-pid", str(os.getpid()))
    return (sys.executable, "-m", "headrace.batch", *words, "--plan", msgspec.json.encode(plan).decode())
