"""The schema: made once, by however many start at once, and the same as `tables.py` says."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

import headrace.database.migrations as migrations
from headrace.database.connect import open_database
from headrace.database.migrate import SCHEMA_VERSION, migrate
from headrace.database.tables import METADATA, REQUESTS
from headrace.database.url import DatabaseError
from headrace.ledger.record import RECORD_FIELDS


def test_migrating_twice_does_something_once(database_url):
    """The first start makes the schema, the second finds it."""
    assert migrate(database_url) is True
    assert migrate(database_url) is False


def test_migrations_and_tables_agree(database_url):
    """What the migrations make is what the code believes is there."""
    migrate(database_url)
    database = open_database(database_url)
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    database.close()


def test_schema_version_is_the_newest_migration():
    """A migration added without raising SCHEMA_VERSION would never run."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_VERSION


def test_rows_have_the_order_of_the_record():
    """Ingestion writes a record's fields by position."""
    assert tuple(REQUESTS.columns.keys()) == RECORD_FIELDS


def test_several_processes_may_start_at_once(database_url):
    """Supervisor, projection and command line migrate at the same moment; each succeeds and one does the work."""
    code = "import sys; from headrace.database.migrate import migrate; print(migrate(sys.argv[1]))"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, database_url], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert sorted(answers) == ["False", "False", "False", "True"]


def test_a_newer_schema_is_left_alone(database_url):
    """An old headrace on a new database stops with a sentence, not with damage."""
    migrate(database_url)
    database = open_database(database_url)
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(DatabaseError, match="version 9999, which this headrace"):
        migrate(database_url)
