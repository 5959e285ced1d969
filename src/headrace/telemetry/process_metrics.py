"""Metrics of the gateway's processes, as prometheus-client's own collector names them. Part of the catalogue."""

from headrace.telemetry.spec import MetricKind, MetricSpec

PROCESS_NAMESPACE = "headrace_gateway"
"""What the collector puts before its names."""


def _metric(kind: MetricKind, name: str, unit: str, description: str) -> MetricSpec:
    full_name = f"{PROCESS_NAMESPACE}_process_{name}"
    return MetricSpec(name=full_name, kind=kind, labels=(), unit=unit, description=description)


PROCESS_CPU = _metric(
    MetricKind.COUNTER, "cpu_seconds_total", "seconds", "CPU time of all gateway workers, user and system."
)
PROCESS_RESIDENT = _metric(
    MetricKind.GAUGE, "resident_memory_bytes", "bytes", "Memory that the gateway workers hold, shared pages in each."
)
PROCESS_VIRTUAL = _metric(
    MetricKind.GAUGE, "virtual_memory_bytes", "bytes", "Address space of the gateway workers; not what they hold."
)
PROCESS_OPEN_FILES = _metric(
    MetricKind.GAUGE, "open_fds", "files", "Open files and connections of all gateway workers."
)
PROCESS_MAX_FILES = _metric(MetricKind.GAUGE, "max_fds", "files", "How many they may have open, all workers together.")
PROCESS_START = _metric(
    MetricKind.GAUGE, "start_time_seconds", "seconds", "When the oldest gateway worker began (Unix time)."
)

PROCESS_METRICS = (
    PROCESS_CPU, PROCESS_RESIDENT, PROCESS_VIRTUAL, PROCESS_OPEN_FILES, PROCESS_MAX_FILES, PROCESS_START,
)  # fmt: skip
"""What the system lets be read: all of them on Linux, none elsewhere."""
