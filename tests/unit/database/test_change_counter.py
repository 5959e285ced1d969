"""How pollers learn that something has changed."""

from pathlib import Path

import pytest

from headrace.database.change_counter import Watched, count_change, read_changes
from headrace.database.connect import Database, open_database
from headrace.database.migrate import migrate
from headrace.database.url import sqlite_url


@pytest.mark.parametrize("watched", list(Watched))
def test_a_change_is_counted_with_what_it_belongs_to(tmp_path: Path, watched: Watched) -> None:
    """Once for each transaction that is kept, and not for the one that is not; others' counters stay."""
    url = sqlite_url(tmp_path / "headrace.db")
    migrate(url)
    database = open_database(url)
    try:
        before = {one: read_changes(database, one) for one in Watched}
        with database.writing() as connection:
            count_change(connection, watched)
        with pytest.raises(ZeroDivisionError):
            _count_and_fail(database, watched)
        after = {one: read_changes(database, one) for one in Watched}
    finally:
        database.close()
    assert after == {**before, watched: before[watched] + 1}


def _count_and_fail(database: Database, watched: Watched) -> None:
    with database.writing() as connection:
        count_change(connection, watched)
        raise ZeroDivisionError
