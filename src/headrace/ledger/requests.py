"""Single requests out of the ledger, newest first, for the control API: when, who, which model, how it ended."""

from sqlalchemy import select

from headrace.database.connect import Database
from headrace.database.tables import REQUESTS
from headrace.ledger.record import RequestRecord
from headrace.ledger.usage import UsageFilter

READ_ROWS = 1000
"""Most requests of one answer."""
_COLUMNS = [REQUESTS.c[name] for name in RequestRecord.__struct_fields__]


def read_requests(
    database: Database, *, since_at: float, until_at: float, only: UsageFilter, limit: int
) -> tuple[dict[str, object], ...]:
    """What arrived from `since_at` up to before `until_at` (UTC epoch seconds), with the journal's field names.

    Raises: DatabaseError.
    """
    query = (
        select(*_COLUMNS)
        .where(REQUESTS.c.received_at >= since_at, REQUESTS.c.received_at < until_at, *only.conditions())
        .order_by(REQUESTS.c.received_at.desc(), REQUESTS.c.uid.desc())
        .limit(min(limit, READ_ROWS))
    )
    with database.reading() as connection:
        return tuple(dict(row) for row in connection.execute(query).mappings())
