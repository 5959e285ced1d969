"""Open files of a worker: a stream takes two, its caller's connection and its engine's.

Where they run out no engine can be reached, and a healthy one would be taken for dead. So a worker takes all that the
system grants, and no more callers than there are files for.
"""

import resource

KEPT_FILES = 64
"""For listening, probes, the journal, logs and the program itself. Measured: an idle worker has 35 to 55 open."""


def raise_open_files() -> int:
    """Raise this process's limit to the most that it may have, and return it. Shells and systemd start programs with
    1,024, whatever the system grants, since `select` can look at no more; the event loop does not use it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS calls its limit endless, and then refuses that
        return soft
    return hard


def most_callers(open_files: int, declared: int) -> int:
    """Caller connections to take, with so many open files and so many declared; one at least."""
    if open_files == resource.RLIM_INFINITY:
        return declared
    return max(1, min(declared, (open_files - KEPT_FILES) // 2))
