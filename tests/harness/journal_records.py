"""What a worker's journal holds, read as the projector reads it."""

from pathlib import Path
from typing import Any

from headrace.ledger.frames import FrameKind, scan_frames
from headrace.ledger.record import RECORD_FIELDS, decode_rows


def records_of(folder: Path) -> list[dict[str, Any]]:
    """Every record in the journal's segments."""
    records: list[dict[str, Any]] = []
    for segment in sorted(path for path in folder.rglob("*") if path.is_file()):
        for frame in scan_frames(segment.read_bytes(), is_end=True).frames:
            if frame.kind is FrameKind.RECORDS:
                records += [dict(zip(RECORD_FIELDS, row, strict=True)) for row in decode_rows(frame.payload)]
    return records
