"""What a declaration's file says of callers, noted in the audit log whenever it has come into force changed.

Compared with what was noted last, not with what this process knew: an edit made while headrace was down, or killed in
the middle of a reload, is noted at the next start.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import select, update

from headrace.database.connect import Database
from headrace.database.tables import DECLARED_TENANCY
from headrace.declaration.load import BUILTIN_NAME, Loaded
from headrace.declaration.model import Declaration
from headrace.domain.admin import OWNER_OF_ALL, Channel, Principal
from headrace.domain.clock import Clock
from headrace.tenancy.audit import AuditChange, append_audit

_BY_NAME = {"organisations": "organisation", "tenants": "tenant"}
_WHOLE = ("identity", "quota", "prices")


def note_declared(database: Database, clock: Clock, loaded: Loaded) -> int:
    """Note what has changed about callers since this file was last noted; the number of changes.

    Raises: DatabaseError.
    """
    file = str(loaded.path) if loaded.path is not None else BUILTIN_NAME
    by = Principal(subject=f"file:{file}", grant=OWNER_OF_ALL, channel=Channel.FILE)
    said = _callers_of(loaded.declaration)
    is_file = DECLARED_TENANCY.c.file == file
    with database.writing() as connection:
        noted = connection.execute(select(DECLARED_TENANCY.c.body).where(is_file).with_for_update()).scalar()
        text = msgspec.json.encode(said).decode()
        if noted == text:
            return 0
        if noted is None:
            connection.execute(DECLARED_TENANCY.insert().values(file=file, body=text))
            names = {section: list(said[section]) for section in _BY_NAME}
            changes = [AuditChange(action="declaration.adopt", name=file, tenant=None, after=names)]
        else:
            connection.execute(update(DECLARED_TENANCY).where(is_file).values(body=text))
            changes = list(_changes(msgspec.json.decode(noted), said))
        for change in changes:
            append_audit(connection, by, change, clock.wall_at())
    return len(changes)


def _callers_of(declaration: Declaration) -> dict[str, Any]:
    """The sections about callers, as JSON values: secrets in them are hidden (`declaration.shape`)."""
    return {
        name: declaration.model_dump(mode="json", include={name}, exclude_unset=True).get(name, {})
        for name in (*_BY_NAME, *_WHOLE)
    }


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[AuditChange]:
    for section, kind in _BY_NAME.items():
        was, now = before.get(section, {}), after.get(section, {})
        for name in dict.fromkeys([*was, *now]):
            if was.get(name) != now.get(name):
                done = "create" if name not in was else "delete" if name not in now else "change"
                yield AuditChange(
                    action=f"{kind}.{done}",
                    name=name,
                    tenant=name if kind == "tenant" else None,
                    before=was.get(name),
                    after=now.get(name),
                )
    for section in _WHOLE:
        if before.get(section) != after.get(section):
            yield AuditChange(
                action=f"{section}.change",
                name=section,
                tenant=None,
                before=before.get(section),
                after=after.get(section),
            )
