"""What the projection needs of a database: rows and positions in one transaction. One file per database beside this."""

from dataclasses import dataclass
from typing import Protocol

Value = str | float | int | bool | None
Row = list[Value]
"""One request, in the order of `record.RECORD_FIELDS`."""


class DatabaseUnavailableError(Exception):
    """The database did not take a batch: nothing of it is written, and it may be tried again."""


class BatchRefusedError(Exception):
    """The database will never take at least one row of the batch: nothing is written; write the rows one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One piece of one journal file."""

    segment: str
    position: int
    """How far the file is projected once this batch is written, bytes."""
    rows: list[Row]
    dropped: int | None = None
    """What the file's writer says it has dropped so far."""
    torn_bytes: int = 0
    refused: int = 0
    """Rows left out of this batch, as the database would not store them."""
    noted_at: float = 0.0


class Ingest(Protocol):
    """One database connection that takes batches.

    Concurrency: one thread. Errors: any method may raise DatabaseUnavailableError; after it, `close` and open anew.
    """

    def read_positions(self) -> dict[str, int]: ...

    def write(self, batch: Batch) -> int:
        """Write the batch in one transaction, leaving out rows that are there already; rows that are new.

        Raises: DatabaseUnavailableError, BatchRefusedError.
        """
        ...

    def make_durable(self) -> bool:
        """Bring all that was written onto the disk, so that journal files may go; False: not possible now."""
        ...

    def forget(self, segments: list[str]) -> None:
        """Remove the positions of files that are gone."""
        ...

    def delete_before(self, received_at: float, limit: int) -> int:
        """Delete at most `limit` rows of requests received before then, oldest first; how many went."""
        ...

    def close(self) -> None: ...


def list_losses(batch: Batch, source: str) -> list[tuple[str, str, int, float]]:
    """Rows for `journal_losses`: source, kind, amount, noted_at. `dropped` is cumulative, the others are added up."""
    amounts = (("dropped", batch.dropped), ("torn", batch.torn_bytes), ("refused", batch.refused))
    return [(source, kind, amount, batch.noted_at) for kind, amount in amounts if amount]
