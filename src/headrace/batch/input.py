"""The input of a batch: its lines, read one after the other, and whether all of them can be sent."""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from headrace.batch.core.lines import ERRORS_SHOWN, LineError, LineRefusedError, read_line


@dataclass(frozen=True, slots=True)
class Validation:
    """What a whole input is: so many lines, or its first errors."""

    total: int
    errors: tuple[LineError, ...]


def iter_lines(path: Path, line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Index (from 0) and text of each line that is not blank; of a line that is too long only the beginning."""
    index = 0
    with path.open("rb") as stream:
        if stream.read(len(BOM_UTF8)) != BOM_UTF8:  # which some editors and spreadsheets put before the first line
            stream.seek(0)
        while text := stream.readline(line_bytes + 2):
            rest = text
            while not rest.endswith(b"\n") and len(rest) > line_bytes:
                rest = stream.readline(line_bytes + 2)
            if text.strip():
                yield index, text
                index += 1


def validate(path: Path, endpoint: str, *, most_lines: int, line_bytes: int) -> Validation:
    """Read the whole input. Memory: 16 bytes of content per line. Raises: OSError."""
    seen: set[bytes] = set()
    errors: list[LineError] = []
    total = 0
    for index, text in iter_lines(path, line_bytes):
        total += 1
        if total > most_lines:
            message = f"the file has more than {most_lines} lines (batch.lines)"
            return Validation(total, (LineError(code="too_many_lines", message=message),))
        try:
            if len(text.rstrip(b"\r\n")) > line_bytes:
                message = f"line {index + 1} is longer than {line_bytes} bytes (gateway.limits.body_bytes)"
                raise LineRefusedError(LineError(code="line_too_long", message=message, line=index + 1))
            line = read_line(text, index + 1, endpoint)
            name = blake2b(line.custom_id.encode(), digest_size=16).digest()
            if name in seen:
                message = f"line {index + 1}: custom_id {line.custom_id[:64]!r} is used by an earlier line"
                problem = LineError(code="duplicate_custom_id", message=message, line=index + 1, param="custom_id")
                raise LineRefusedError(problem)
            seen.add(name)
        except LineRefusedError as refused:
            errors.append(refused.problem)
            if len(errors) >= ERRORS_SHOWN:
                break
    if total == 0:
        errors.append(LineError(code="empty_file", message="the file has no lines"))
    return Validation(total, tuple(errors))
