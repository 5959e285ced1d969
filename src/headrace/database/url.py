"""Database URLs as operators write them, and how to show them without their password. Needs no database library."""

import re
from dataclasses import dataclass
from pathlib import Path

from headrace.domain.operator_error import OperatorError

_PASSWORD = re.compile(r"(?<=://)(?P<user>[^:/@]*):[^/]*@|(?P<query>[?&](?:ssl)?password)=[^&]*")


class DatabaseError(OperatorError):
    """The database cannot be used. The message names its URL without the password, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUrl:
    """A checked URL of `ledger.database`. Its `repr` shows no password."""

    text: str
    """As SQLAlchemy takes it; may hold a password."""
    sqlite_path: Path | None
    """The file; None for PostgreSQL."""

    @property
    def is_sqlite(self) -> bool:
        return self.sqlite_path is not None

    @property
    def libpq_uri(self) -> str:
        """The same for psycopg, which takes libpq's form."""
        return "postgresql://" + self.text.partition("://")[2]

    @property
    def shown(self) -> str:
        """The URL with its password masked."""
        return mask_password(self.text)

    def __repr__(self) -> str:
        return f"DatabaseUrl({self.shown})"


def mask_password(url: str) -> str:
    """`url` with every password in it replaced by `***`."""
    return _PASSWORD.sub(lambda found: f"{found['query']}=***" if found["query"] else f"{found['user']}:***@", url)


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{path}"


def parse_database_url(url: str) -> DatabaseUrl:
    """Check `url` and say which database it means.

    Raises: DatabaseError.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in {"sqlite", "sqlite+pysqlite"} and rest.startswith("/") and len(rest) > 1:
        return DatabaseUrl(text=url, sqlite_path=Path(rest[1:]))
    if separator and scheme in {"postgresql", "postgresql+psycopg", "postgres"}:
        return DatabaseUrl(text=f"postgresql+psycopg://{rest}", sqlite_path=None)
    raise DatabaseError(
        f'ledger.database: "{mask_password(url)}" is not a database headrace can use',
        hint="Write postgresql+psycopg://USER:PASSWORD@HOST/DATABASE or sqlite:///PATH.",
    )
