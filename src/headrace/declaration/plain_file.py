"""Reading a file that others name, within a bound: what is no file is named as what it is, and never waited for."""

import errno
import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_there(path: Path) -> bool:
    """Whether there is anything of this name: a link that leads nowhere and a file that may not be seen are there."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def read_plain(path: Path, most_bytes: int) -> bytes:
    """Return the content, or the first `most_bytes` and one more.

    Raises: OSError, whose `strerror` says what is there instead of a file.
    """
    _refuse_others(_status(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may have become a pipe since
    with os.fdopen(descriptor, "rb") as stream:
        _refuse_others(os.fstat(descriptor))
        return stream.read(most_bytes + 1)


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        if not path.is_symlink():
            raise
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link that leads round in a circle") from error
        if error.errno == errno.ENOENT:
            said = f"it is a link to {path.readlink()}, where there is nothing"
            raise FileNotFoundError(errno.ENOENT, said) from error
        raise


def _refuse_others(status: os.stat_result) -> None:
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(errno.EINVAL, f"it is {name}, not a file")
