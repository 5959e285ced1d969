"""One declaration of file and API together."""

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.declaration.model import Declaration
from headrace.domain.quota import Level
from headrace.tenancy.overlay import EntryKind, StoredEntry, Suspension, TenancyOverlay, merge

AT = datetime(2026, 1, 1, tzinfo=UTC)
FILE = Declaration.model_validate(
    {
        "models": {"m": {}},
        "pools": {"p": {"model": "m", "engine": "vllm", "endpoints": ["http://127.0.0.1:1"]}},
        "organisations": {"acme": {}},
        "tenants": {"search": {"weight": 2, "projects": {"web": {}, "lab": {}}}, "closed": {"suspended": True}},
    }
)


def entry(kind: EntryKind, name: str, **body: Any) -> StoredEntry:
    return StoredEntry(kind=kind, name=name, body=body, version=1, created_at=AT, changed_at=AT)


def suspended(level: Level, name: str) -> TenancyOverlay:
    return TenancyOverlay(suspensions=(Suspension(level=level, name=name, reason="", since_at=AT),))


def test_nothing_added_is_the_file_itself():
    """An instance without entries of the API costs nothing."""
    assert merge(FILE, TenancyOverlay()) is FILE


def test_entries_of_the_api_come_after_those_of_the_file():
    """Both kinds, as if the file had them."""
    overlay = TenancyOverlay(
        entries=(entry(EntryKind.ORGANISATION, "globex"), entry(EntryKind.TENANT, "ads", organisation="globex"))
    )
    merged = merge(FILE, overlay)
    assert list(merged.organisations) == ["acme", "globex"]
    assert list(merged.tenants) == ["search", "closed", "ads"]
    assert merged.tenants["ads"].organisation == "globex"
    assert list(FILE.tenants) == ["search", "closed"]


def test_where_both_have_an_entry_the_file_counts():
    """Nobody can weaken the file's limits over the API."""
    merged = merge(FILE, TenancyOverlay(entries=(entry(EntryKind.TENANT, "search", weight=100),)))
    assert merged.tenants["search"].weight == 2


def test_an_entry_that_is_not_understood_is_left_out():
    """An older headrace on a newer database refuses that tenant's callers, and starts."""
    merged = merge(FILE, TenancyOverlay(entries=(entry(EntryKind.TENANT, "ads", from_the_future=1),)))
    assert "ads" not in merged.tenants


@pytest.mark.parametrize(
    ("level", "name", "closed"),
    [
        (Level.TENANT, "search", ["search"]),
        (Level.ORGANISATION, "acme", ["acme"]),
        (Level.PROJECT, "search/web", ["search/web"]),
        (Level.TENANT, "nobody", []),
    ],
)
def test_a_suspension_closes_exactly_what_it_names(level, name, closed):
    """And what the file has closed stays so."""
    merged = merge(FILE, suspended(level, name))
    found = [one for one, section in merged.organisations.items() if section.suspended]
    for tenant, section in merged.tenants.items():
        found += [tenant] if section.suspended else []
        found += [f"{tenant}/{project}" for project, one in section.projects.items() if one.suspended]
    assert sorted(found) == sorted([*closed, "closed"])
