"""headrace's own log: structlog, one JSON line each, into logs/supervisor.log with rotation. Never keys or content."""

import logging

import structlog
from structlog.typing import EventDict, FilteringBoundLogger

from headrace.fleet.deploy.rotated_log import RotatedLog
from headrace.settings import Settings

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _LogFile:
    """What structlog writes its lines to."""

    def __init__(self, log: RotatedLog) -> None:
        self._log = log

    def msg(self, line: str) -> None:
        self._log.write(line.encode() + b"\n")

    log = debug = info = warning = error = critical = exception = msg


def open_supervisor_log(settings: Settings, *, level: str, limit_bytes: int, keep_files: int) -> FilteringBoundLogger:
    """Send all of structlog's lines of this process to logs/supervisor.log."""
    log_file = _LogFile(RotatedLog(settings.log_dir / "supervisor.log", limit_bytes=limit_bytes, keep_files=keep_files))

    def make_log_file(*_: object) -> _LogFile:
        return log_file

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
            _name_service,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=make_log_file,
        cache_logger_on_first_use=False,
    )
    return structlog.get_logger("headrace.supervisor")


def _name_service(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {"service": "headrace-supervisor", **event}
