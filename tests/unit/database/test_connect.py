"""Opening a database: errors that name it without its password, and SQLite's settings."""

import pytest
from sqlalchemy import text

from headrace.database.connect import database_error, open_database
from headrace.database.url import DatabaseError, parse_database_url


@pytest.mark.postgres
def test_an_unreachable_server_is_named_without_its_password():
    """The operator learns which database does not answer; the password stays out."""
    database = open_database("postgresql://headrace:hunter2@127.0.0.1:1/ledger")
    with pytest.raises(DatabaseError) as caught, database.reading():
        pass
    assert "postgresql+psycopg://headrace:***@127.0.0.1:1/ledger" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "Start the server, or correct ledger.database" in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ('FATAL:  database "ledger" does not exist', "createdb"),
        ('FATAL:  password authentication failed for user "a"', "user and password"),
        ("failed to resolve host 'db.invalid': Name or service not known", "DNS"),
        ('relation "t" does not exist', None),
    ],
)
def test_what_keeps_a_database_from_being_used_has_its_remedy(reason: str, remedy: str | None) -> None:
    """The message names what to do; an error of a query, which is ours, is not blamed on the server."""
    hint = database_error(parse_database_url("postgresql://h@db/ledger"), OSError(reason)).hint
    assert (hint is None) if remedy is None else (remedy in str(hint))


def test_readers_of_sqlite_do_not_wait_for_its_writer(tmp_path):
    """`headrace usage` works while the projection writes."""
    database = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    with database.writing() as writer:
        writer.execute(text("CREATE TABLE t (a)"))
    with database.writing() as writer, database.reading() as reader:
        writer.execute(text("INSERT INTO t VALUES (1)"))
        assert reader.execute(text("SELECT count(*) FROM t")).scalar() == 0


def test_a_failed_transaction_leaves_nothing(database_url):
    """Schema changes are undone with the rest."""
    database = open_database(database_url)

    def fail_midway() -> None:
        with database.writing() as connection:
            connection.execute(text("CREATE TABLE t (a INTEGER)"))
            connection.execute(text("no SQL at all"))

    with pytest.raises(DatabaseError, match="no"):
        fail_midway()
    with pytest.raises(DatabaseError), database.reading() as connection:
        connection.execute(text("SELECT * FROM t"))
    database.close()
