"""What the file says of callers gets into the audit log whenever it has changed, however it came into force."""

from pathlib import Path

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.declaration.load import Loaded, load_declaration
from headrace.domain.clock import SystemClock
from headrace.tenancy.audit import read_audit
from headrace.tenancy.declared import note_declared

BEFORE = """
models: {small: {}}
pools: {p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}}
tenants:
  search: {limits: {requests_per_min: 60}}
  ads: {}
"""


@pytest.fixture
def database(tmp_path):
    url = f"sqlite:///{tmp_path / 'headrace.db'}"
    migrate(url)
    opened = open_database(url)
    yield opened
    opened.close()


@pytest.fixture
def note(database, tmp_path: Path):
    path = tmp_path / "headrace.yaml"

    def loaded(text: str) -> Loaded:
        path.write_text(text)
        return load_declaration(path, environ={})

    return lambda text: note_declared(database, SystemClock(), loaded(text))


def test_the_first_declaration_is_noted_by_its_names(note, database):
    """One line, however many tenants."""
    assert note(BEFORE) == 1
    [entry] = read_audit(database)
    assert entry.action == "declaration.adopt"
    assert entry.after == {"organisations": [], "tenants": ["search", "ads"]}


def test_the_same_declaration_is_noted_once(note, database):
    """A restart, or a reload that changes something else, adds nothing."""
    note(BEFORE)
    assert note(BEFORE) == 0
    assert note(BEFORE + "observability: {log_level: debug}\n") == 0
    assert len(read_audit(database)) == 1


def test_each_changed_tenant_has_a_line(note, database):
    """Made, changed, taken out: with what it was and what it is."""
    note(BEFORE)
    after = BEFORE.replace("60", "600").replace("ads: {}", "maps: {weight: 2}")
    assert note(after) == 3
    entries = {entry.action: entry for entry in read_audit(database)[:3]}
    assert (entries["tenant.create"].name, entries["tenant.delete"].name) == ("maps", "ads")
    changed = entries["tenant.change"]
    assert (changed.name, changed.tenant) == ("search", "search")
    assert changed.before == {"limits": {"requests_per_min": 60}}
    assert changed.after == {"limits": {"requests_per_min": 600}}
    assert changed.subject.startswith("file:")


def test_changed_rules_for_tokens_have_a_line_for_all(note, database):
    """Who may sign tokens concerns everybody."""
    note(BEFORE)
    issuer = "{issuer: 'https://idp.example', audience: [headrace], tenant: {claim: team}}"
    assert note(f"{BEFORE}identity: {{oidc: {{corporate: {issuer}}}}}\n") == 1
    entry = read_audit(database)[0]
    assert (entry.action, entry.tenant) == ("identity.change", None)
