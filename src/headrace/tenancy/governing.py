"""What operators may do with organisations, tenants, projects: the rules behind control API and command line.

The file and the API are both sources. What the file has can be suspended here, and is changed there.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

import msgspec
from pydantic import TypeAdapter, ValidationError

from headrace.declaration.fields import section_at
from headrace.declaration.lint_callers import lint_callers
from headrace.declaration.load import Loaded
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.places import Places
from headrace.declaration.problem import KeyPath, Severity, dotted
from headrace.declaration.shape import Name
from headrace.declaration.tenant_sections import Allowance, Organisation, TenantSection
from headrace.domain.admin import Principal
from headrace.domain.clock import Clock
from headrace.domain.ids import TenantId
from headrace.domain.operator_error import UnknownNameError, WrongUsageError
from headrace.domain.quota import Level
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.conflict import ConflictError, ManagedByFileError
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.key_view import KeyState, view_key
from headrace.tenancy.overlay import (
    EntryKind,
    StoredEntry,
    Suspension,
    TenancyOverlay,
    merge,
    project_name,
    sections_of,
)

REASON_CHARACTERS = 256
_NAME = TypeAdapter[str](Name)


class ManagedBy(StrEnum):
    """Who owns an entry: where it is changed."""

    FILE = "file"
    API = "api"
    NOBODY = "nobody"
    """Only keys still name it; they are refused."""


class EntryNotFoundError(UnknownNameError):
    """There is no organisation, tenant or project of this name."""


class EntryWishError(WrongUsageError):
    """The entry cannot be as asked."""


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """One organisation or tenant, as it is shown."""

    kind: EntryKind
    name: str
    managed_by: ManagedBy
    place: str | None
    """File and line, where the file owns it."""
    version: int | None
    """Grows with each change over the API; None where the file owns it."""
    section: dict[str, Any]
    """What is set, as headrace.yaml says it; the rest is as by default."""
    is_suspended: bool
    suspended_projects: tuple[str, ...] = ()
    suspended_since_at: datetime | None = None
    """None: it is not, or the file says so."""
    reason: str = ""
    active_keys: int = 0
    """Of its callers and of its own operators, suspended ones too: what deleting it would revoke."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """The callers of one instance, as they are declared and stored.

    Concurrency: every call blocks on the database. Raises: DatabaseError.
    """

    loaded: Loaded
    """What the file says, without what the API adds."""
    entries: EntryStore
    keys: KeyStore
    clock: Clock
    shows_folder: bool = True
    """Whoever asks may know where on this machine the file lies, not only its name and line."""

    # --- look

    def declaration(self) -> Declaration:
        """File and API together."""
        return merge(self.loaded.declaration, self.entries.read())

    def list_entries(self, kind: EntryKind, *, only: TenantId | None = None) -> tuple[EntryView, ...]:
        """All of one kind, the file's first; `only` this tenant, for a role that reaches no further."""
        overlay = self.entries.read()
        merged = merge(self.loaded.declaration, overlay)
        active = self._active_keys() if kind is EntryKind.TENANT else Counter[str]()
        names = [name for name in sections_of(merged, kind) if only is None or name == only]
        places = self._places()
        views = [self._view(kind, name, merged, overlay, active[name], places) for name in names]
        left_over = [name for name in sorted(active) if name not in merged.tenants and only in (None, name)]
        return (*views, *(_view_left_over(name, active[name]) for name in left_over))

    def get_entry(self, kind: EntryKind, name: str) -> EntryView:
        """Raises: EntryNotFoundError."""
        overlay = self.entries.read()
        merged = merge(self.loaded.declaration, overlay)
        self._get_section(merged, kind, name)
        active = self._active_keys()[name] if kind is EntryKind.TENANT else 0
        return self._view(kind, name, merged, overlay, active, self._places())

    # --- change

    def create(
        self, kind: EntryKind, name: str, body: Mapping[str, Any], *, by: Principal, is_dry_run: bool = False
    ) -> EntryView:
        """Make an entry that the API owns. Raises: EntryWishError, ConflictError."""
        try:
            _NAME.validate_python(name)
        except ValidationError as error:
            hint = "Letters, digits and . _ : / @ -, beginning with a letter or digit, at most 128."
            raise EntryWishError(f'"{name[:128]}" is not a valid name', hint=hint) from error
        overlay = self.entries.read()
        if name in sections_of(merge(self.loaded.declaration, overlay), kind):
            raise ConflictError(f'{kind.value} "{name}" exists already{self._whereabouts(kind, name)}')
        section, warnings = self._check(kind, name, body, overlay)
        if not is_dry_run:
            self.entries.create_entry(kind, name, _set_of(section), by)
        return self._shown_after(kind, name, section, warnings, version=1)

    def change(
        self,
        kind: EntryKind,
        name: str,
        patch: Mapping[str, Any],
        *,
        by: Principal,
        expected_version: int | None = None,
        is_dry_run: bool = False,
    ) -> EntryView:
        """Merge `patch` into an entry that the API owns (RFC 7396: null takes a key out).

        Raises: EntryNotFoundError, EntryWishError, ManagedByFileError, ChangedMeanwhileError.
        """
        overlay = self.entries.read()
        entry = self._get_own(kind, name, overlay)
        if expected_version is None:
            expected_version = entry.version
        body = merge_patch(entry.body, patch)
        section, warnings = self._check(kind, name, body, overlay)
        version = entry.version
        if not is_dry_run:
            version = self.entries.change_entry(kind, name, _set_of(section), expected_version, by).version
        return self._shown_after(kind, name, section, warnings, version=version)

    def delete(
        self, kind: EntryKind, name: str, *, by: Principal, revokes_keys: bool = False, is_dry_run: bool = False
    ) -> EntryView:
        """Forget an entry that the API owns; what it was is returned.

        Raises: EntryNotFoundError, ManagedByFileError; ConflictError where keys or tenants still need it.
        """
        overlay = self.entries.read()
        self._get_own(kind, name, overlay)
        view = self.get_entry(kind, name)
        self._refuse_needed(kind, name, merge(self.loaded.declaration, overlay))
        active = self._keys_of(TenantId(name)) if kind is EntryKind.TENANT else []
        if kind is EntryKind.TENANT and active and not revokes_keys:
            hint = "Revoke them first, or have them revoked with it (--revoke-keys, ?revoke_keys=true)."
            raise ConflictError(f'tenant "{name}" has {len(active)} active key(s)', hint=hint)
        if is_dry_run:
            return view
        if kind is EntryKind.TENANT:
            for record in active:
                self.keys.revoke_key(record.key_id, by=by)
        self.entries.delete_entry(kind, name, by)
        return view

    def suspend(self, kind: EntryKind, name: str, *, project: str | None, reason: str, by: Principal) -> EntryView:
        """Refuse new requests, wherever the entry is declared. Raises: EntryNotFoundError, EntryWishError."""
        if len(reason) > REASON_CHARACTERS or not reason.isprintable():
            raise EntryWishError(f"a reason is at most {REASON_CHARACTERS} printable characters")
        level, full_name = self._subject(kind, name, project)
        self.entries.suspend(level, full_name, reason, tenant=_tenant_of(kind, name), by=by)
        return self.get_entry(kind, name)

    def resume(self, kind: EntryKind, name: str, *, project: str | None, by: Principal) -> EntryView:
        """Take requests again.

        Raises: EntryNotFoundError; ManagedByFileError where it is the file that says `suspended: true`.
        """
        level, full_name = self._subject(kind, name, project)
        self.entries.resume(level, full_name, tenant=_tenant_of(kind, name), by=by)
        declared = sections_of(self.loaded.declaration, kind).get(name)
        path: KeyPath = (kind.section, name)
        section: Allowance | None = declared
        if project is not None and isinstance(declared, TenantSection):
            section, path = declared.projects.get(project), (*path, "projects", project)
        if section is not None and section.suspended:
            raise self._file_owns(f'the suspension of {level.value} "{full_name}"', (*path, "suspended"))
        return self.get_entry(kind, name)

    # --- inside

    def _places(self) -> Places:
        return Places(self.loaded, shows_folder=self.shows_folder)

    def _check(
        self, kind: EntryKind, name: str, body: Mapping[str, Any], overlay: TenancyOverlay
    ) -> tuple[Organisation | TenantSection, tuple[str, ...]]:
        """Validate `body` and its references. Raises: EntryWishError with everything that is wrong."""
        if "suspended" in body:
            raise EntryWishError("suspended: is not set like this", hint="Use suspend and resume.")
        try:
            section = kind.model.model_validate(dict(body))
        except ValidationError as error:
            raise EntryWishError("\n".join(_said(kind, name, one) for one in error.errors())) from error
        others = tuple(entry for entry in overlay.entries if (entry.kind, entry.name) != (kind, name))
        merged = merge(self.loaded.declaration, msgspec.structs.replace(overlay, entries=others))
        sections = {**sections_of(merged, kind), name: section}
        merged = merged.model_copy(update={kind.section: sections})
        found = [
            one
            for one in lint_callers(merged, frozenset(merged.models))
            if (one.path[:2] == (kind.section, name) and not _is_about_emptiness(kind, one.path))
            or (one.path[:1] == ("prices",) and section.budget.model_fields_set)
        ]
        errors = [one for one in found if one.severity is Severity.ERROR]
        if errors:
            texts = (f"{dotted(one.path[2:])}: {one.message}{f' ({one.hint})' if one.hint else ''}" for one in errors)
            raise EntryWishError("\n".join(texts))
        return section, tuple(f"{dotted(one.path[2:] or one.path)}: {one.message}" for one in found)

    def _subject(self, kind: EntryKind, name: str, project: str | None) -> tuple[Level, str]:
        section = self._get_section(self.declaration(), kind, name)
        if project is None:
            return Level(kind.value), name
        projects = section.projects if isinstance(section, TenantSection) else {}
        if project not in projects:
            hint = did_you_mean(project, projects)
            raise EntryNotFoundError(f'{kind.value} "{name}" has no project "{project[:128]}"', hint=hint)
        return Level.PROJECT, project_name(name, project)

    def _get_section(self, merged: Declaration, kind: EntryKind, name: str) -> Organisation | TenantSection:
        sections = sections_of(merged, kind)
        if name not in sections:
            hint = did_you_mean(name, sections)
            raise EntryNotFoundError(f'there is no {kind.value} "{name[:128]}"', hint=hint)
        return sections[name]

    def _get_own(self, kind: EntryKind, name: str, overlay: TenancyOverlay) -> StoredEntry:
        """The entry, where the API owns it. Raises: EntryNotFoundError, ManagedByFileError."""
        if name in sections_of(self.loaded.declaration, kind):
            raise self._file_owns(f'{kind.value} "{name}"', (kind.section, name))
        self._get_section(merge(self.loaded.declaration, overlay), kind, name)
        return next(entry for entry in overlay.entries if (entry.kind, entry.name) == (kind, name))

    def _file_owns(self, what: str, path: KeyPath) -> ManagedByFileError:
        places = self._places()
        return ManagedByFileError(what, places.show(path), places.find_line(path))

    def _whereabouts(self, kind: EntryKind, name: str) -> str:
        if name not in sections_of(self.loaded.declaration, kind):
            return ""
        return f", in {self._places().show((kind.section, name))}"

    def _refuse_needed(self, kind: EntryKind, name: str, merged: Declaration) -> None:
        if kind is not EntryKind.ORGANISATION:
            return
        tenants = [tenant for tenant, section in merged.tenants.items() if section.organisation == name]
        if tenants:
            raise ConflictError(f'organisation "{name}" still has tenants: {", ".join(tenants[:5])}')

    def _active_keys(self) -> Counter[str]:
        """As many as `delete` would have to revoke, by tenant."""
        return Counter(key.tenant for key in self._bound_keys())

    def _keys_of(self, tenant: TenantId) -> list[KeyRecord]:
        return self._bound_keys(tenant)

    def _bound_keys(self, tenant: TenantId | None = None) -> list[KeyRecord]:
        """Active keys that mean nothing without their tenant: of its callers, and of its own operators."""
        narrow = {key_id for key_id, grant in self.keys.read_grants().items() if grant.tenant is not None}
        active = [key for key in self.keys.list_keys(tenant=tenant) if self._is_active(key)]
        return [key for key in active if key.scope is Scope.INFERENCE or key.key_id in narrow]

    def _is_active(self, record: KeyRecord) -> bool:
        return view_key(record, self.clock.wall_at()).state in (KeyState.ACTIVE, KeyState.SUSPENDED)

    def _view(
        self,
        kind: EntryKind,
        name: str,
        merged: Declaration,
        overlay: TenancyOverlay,
        active_keys: int,
        places: Places,
    ) -> EntryView:
        section = sections_of(merged, kind)[name]
        is_declared = name in sections_of(self.loaded.declaration, kind)
        own = next((one for one in overlay.entries if (one.kind, one.name) == (kind, name)), None)
        suspension = _find_suspension(overlay, Level(kind.value), name)
        projects = section.projects if isinstance(section, TenantSection) else {}
        body = _set_of(section)
        body.pop("suspended", None)
        return EntryView(
            kind=kind,
            name=name,
            managed_by=ManagedBy.FILE if is_declared else ManagedBy.API,
            place=places.show((kind.section, name)) if is_declared else None,
            version=None if is_declared or own is None else own.version,
            section=body,
            is_suspended=section.suspended,
            suspended_projects=tuple(project for project, one in projects.items() if one.suspended),
            suspended_since_at=None if suspension is None else suspension.since_at,
            reason="" if suspension is None else suspension.reason,
            active_keys=active_keys,
        )

    def _shown_after(
        self, kind: EntryKind, name: str, section: Organisation | TenantSection, warnings: tuple[str, ...], version: int
    ) -> EntryView:
        return EntryView(
            kind=kind,
            name=name,
            managed_by=ManagedBy.API,
            place=None,
            version=version,
            section=_set_of(section),
            is_suspended=_find_suspension(self.entries.read(), Level(kind.value), name) is not None,
            warnings=warnings,
        )


def _view_left_over(name: str, active_keys: int) -> EntryView:
    """A tenant that is declared nowhere any more, but has keys."""
    return EntryView(
        kind=EntryKind.TENANT,
        name=name,
        managed_by=ManagedBy.NOBODY,
        place=None,
        version=None,
        section={},
        is_suspended=False,
        active_keys=active_keys,
    )


def merge_patch(target: Any, patch: Any) -> Any:
    """Merge as RFC 7396 has it: objects are merged, null takes away, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged: dict[str, Any] = dict(cast("Mapping[str, Any]", target)) if isinstance(target, Mapping) else {}
    for key, value in cast("Mapping[str, Any]", patch).items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _set_of(section: Allowance) -> dict[str, Any]:
    """What is set of a section, as JSON values."""
    return section.model_dump(mode="json", exclude_unset=True)


def _tenant_of(kind: EntryKind, name: str) -> str | None:
    return name if kind is EntryKind.TENANT else None


def _find_suspension(overlay: TenancyOverlay, level: Level, name: str) -> Suspension | None:
    return next((one for one in overlay.suspensions if (one.level, one.name) == (level, name)), None)


def _is_about_emptiness(kind: EntryKind, path: KeyPath) -> bool:
    """An organisation made a moment ago has no tenant yet: that is no warning here."""
    return kind is EntryKind.ORGANISATION and len(path) == 2


def _said(kind: EntryKind, name: str, details: Any) -> str:
    """One pydantic error in our words, with the nearest key where there is no such key."""
    path: tuple[str | int, ...] = tuple(part for part in details["loc"] if part != "[key]")
    if details["type"] == "extra_forbidden":
        section = section_at((kind.section, name, *path[:-1]))
        hint = did_you_mean(str(path[-1]), section.model_fields) if section is not None else None
        return f"{dotted(path)}: there is no such key" + (f". {hint}" if hint else "")
    message = str(details["ctx"]["error"]) if details["type"] == "value_error" else str(details["msg"])
    return f"{dotted(path)}: {message}" if path else message
