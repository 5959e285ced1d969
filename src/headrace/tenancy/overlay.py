"""What the control API adds to the declaration: organisations and tenants of its own, and who is suspended.

`merge` makes one declaration of both, by which everything else works. Where both have an entry, the file's counts.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError

from headrace.declaration.model import Declaration
from headrace.declaration.tenant_sections import Allowance, Organisation, Project, TenantSection
from headrace.domain.quota import Level


class EntryKind(StrEnum):
    """What can be made over the API beside keys; a tenant has its projects within it."""

    ORGANISATION = "organisation"
    TENANT = "tenant"

    @property
    def section(self) -> str:
        """Its section of headrace.yaml."""
        return "organisations" if self is EntryKind.ORGANISATION else "tenants"

    @property
    def model(self) -> type[Organisation] | type[TenantSection]:
        return Organisation if self is EntryKind.ORGANISATION else TenantSection


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One organisation or tenant made over the API."""

    kind: EntryKind
    name: str
    body: dict[str, Any]
    """Its section, as headrace.yaml has it: what was set, without what stands at its default."""
    version: int
    created_at: datetime
    changed_at: datetime


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """Who is refused, and why."""

    level: Level
    name: str
    """Of a project: `tenant/project`."""
    reason: str
    since_at: datetime


class TenancyOverlay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the database says of callers beside their keys."""

    entries: tuple[StoredEntry, ...] = ()
    suspensions: tuple[Suspension, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.suspensions


NOTHING = TenancyOverlay()


def merge(declaration: Declaration, overlay: TenancyOverlay) -> Declaration:
    """Return the declaration with what the API has added."""
    if overlay.is_empty:
        return declaration
    suspended = frozenset((one.level, one.name) for one in overlay.suspensions)
    organisations = {**declaration.organisations}
    tenants = {**declaration.tenants}
    for entry in overlay.entries:
        section = find_section(entry)
        if isinstance(section, TenantSection):
            tenants.setdefault(entry.name, section)
        elif section is not None:
            organisations.setdefault(entry.name, section)
    return declaration.model_copy(
        update={
            "organisations": _suspend(organisations, Level.ORGANISATION, suspended),
            "tenants": {
                name: _suspend_projects(name, tenant, suspended)
                for name, tenant in _suspend(tenants, Level.TENANT, suspended).items()
            },
        }
    )


def find_section(entry: StoredEntry) -> Organisation | TenantSection | None:
    """The entry's section; None where this version does not understand it any more: its callers are refused."""
    try:
        return entry.kind.model.model_validate(entry.body)
    except ValidationError:
        return None


def shadowed(declaration: Declaration, entries: Iterable[StoredEntry]) -> tuple[StoredEntry, ...]:
    """Entries that the file has as well: the file's count."""
    return tuple(entry for entry in entries if entry.name in sections_of(declaration, entry.kind))


def sections_of(declaration: Declaration, kind: EntryKind) -> Mapping[str, Organisation | TenantSection]:
    """The sections of one kind, by name."""
    return declaration.organisations if kind is EntryKind.ORGANISATION else declaration.tenants


def project_name(tenant: str, project: str) -> str:
    """How a project is called outside its tenant."""
    return f"{tenant}/{project}"


def projects_of(declaration: Declaration, tenant: str | None) -> list[str]:
    """Names of the tenant's projects, or of all tenants' for None."""
    sections = declaration.tenants if tenant is None else {tenant: declaration.tenants.get(tenant)}
    return sorted({project for section in sections.values() if section is not None for project in section.projects})


_Suspended = frozenset[tuple[Level, str]]
_SectionT = TypeVar("_SectionT", bound=Allowance)


def _suspend(sections: Mapping[str, _SectionT], level: Level, suspended: _Suspended) -> dict[str, _SectionT]:
    return {name: _suspended(section) if (level, name) in suspended else section for name, section in sections.items()}


def _suspend_projects(tenant: str, section: TenantSection, suspended: _Suspended) -> TenantSection:
    names = [name for name in section.projects if (Level.PROJECT, project_name(tenant, name)) in suspended]
    if not names:
        return section
    projects: dict[str, Project] = {**section.projects, **{name: _suspended(section.projects[name]) for name in names}}
    return section.model_copy(update={"projects": projects})


def _suspended(section: _SectionT) -> _SectionT:
    return section.model_copy(update={"suspended": True})
