"""Entry of the batch process: `python -m headrace.batch`, as `launch.py` says it."""

import argparse
import asyncio
import contextlib
import io
import os
import socket
import sys

import msgspec
import structlog

from headrace.batch.process import run_batches
from headrace.declaration.batch_section import BatchPlan
from headrace.settings import load_settings


class _Log(io.StringIO):
    """Standard error, as far as there is room: on a full disk what fails to be logged must not fail anything else."""

    def write(self, s: str, /) -> int:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), s.encode())
        return len(s)


def main() -> None:
    """Run until the supervisor says otherwise."""
    parser = argparse.ArgumentParser(prog="headrace.batch")
    parser.add_argument("--listen-fd", type=int, required=True, help="inherited listening Unix socket")
    parser.add_argument("--supervisor-pid", type=int, required=True, help="whose loss ends this process")
    parser.add_argument("--plan", required=True, help="JSON of a BatchPlan")
    options = parser.parse_args()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(_Log()),
    )
    plan = msgspec.json.decode(options.plan, type=BatchPlan)
    asyncio.run(run_batches(load_settings(), plan, socket.socket(fileno=options.listen_fd), options.supervisor_pid))


if __name__ == "__main__":
    main()
