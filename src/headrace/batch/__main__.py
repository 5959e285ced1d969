"""Entry of the batch process: `python -m headrace.batch`, as `launch.py` says it."""

import argparse
import asyncio
import socket

import msgspec

from headrace.batch.process import run_batches
from headrace.declaration.batch_section import BatchPlan
from headrace.settings import load_settings
from headrace.telemetry.process_log import log_to_stderr


def main() -> None:
    """Run until the supervisor says otherwise."""
    parser = argparse.ArgumentParser(prog="headrace.batch")
    parser.add_argument("--listen-fd", type=int, required=True, help="inherited listening Unix socket")
    parser.add_argument("--supervisor-pid", type=int, required=True, help="whose loss ends this process")
    parser.add_argument("--plan", required=True, help="JSON of a BatchPlan")
    options = parser.parse_args()
    log_to_stderr()
    plan = msgspec.json.decode(options.plan, type=BatchPlan)
    asyncio.run(run_batches(load_settings(), plan, socket.socket(fileno=options.listen_fd), options.supervisor_pid))


if __name__ == "__main__":
    main()
