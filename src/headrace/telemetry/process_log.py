"""What processes beside the supervisor log: structlog, one JSON line each, on standard error, which is a file in logs/.

Counterpart: `wiring/supervisor_log.py`.
"""

import contextlib
import io
import os
import sys

import structlog


def log_to_stderr() -> None:
    """Send all of structlog's lines of this process there."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(_StandardError()),
    )


class _StandardError(io.StringIO):
    """As far as there is room: on a full disk what fails to be logged must not fail anything else. A line is written at
    once, so that those of several processes do not mix."""

    def write(self, s: str, /) -> int:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), s.encode())
        return len(s)
