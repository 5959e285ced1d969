"""Database URLs: which are understood, and that none shows its password."""

from pathlib import Path

import pytest

from headrace.database.url import DatabaseError, mask_password, parse_database_url, sqlite_url


def test_a_sqlite_file_is_named_by_its_path():
    """The default database's URL leads back to its file."""
    url = parse_database_url(sqlite_url(Path("/var/lib/headrace/headrace.db")))
    assert url.sqlite_path == Path("/var/lib/headrace/headrace.db")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_postgresql_is_always_reached_by_psycopg(scheme):
    """All usual ways to write PostgreSQL mean the same."""
    url = parse_database_url(f"{scheme}://u:p@h/d")
    assert (url.text, url.libpq_uri) == ("postgresql+psycopg://u:p@h/d", "postgresql://u:p@h/d")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter2@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:hun@ter:2@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql://h/d?user=u&password=hunter2&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("postgresql://h/d?sslpassword=hunter2", "postgresql://h/d?sslpassword=***"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_shown_url_has_no_password(url, shown):
    """Errors and logs name the database, never its password."""
    assert mask_password(url) == shown


@pytest.mark.parametrize("url", ["", "headrace.db", "mysql://u:hunter2@h/d", "sqlite://", "sqlite:///"])
def test_an_unusable_url_is_refused_with_what_to_write(url):
    """The operator sees what would be right, and no password."""
    with pytest.raises(DatabaseError, match=r"sqlite:///PATH\.") as caught:
        parse_database_url(url)
    assert "hunter2" not in str(caught.value)
