"""A declaration that has come into force is noted in the audit log, at the latest when the database is back."""

from pathlib import Path

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.declaration.load import load_declaration
from headrace.domain.clock import SystemClock
from headrace.settings import load_settings
from headrace.tenancy.audit import read_audit
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.key_store import KeyStore
from headrace.wiring.caller_source import CallerSource
from headrace.wiring.key_source import KeySource

CONFIG = """\
version: 1
models: {small: {}}
pools: {p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}}
tenants: {search: {weight: 1}}
"""


def test_what_could_not_be_noted_is_noted_once_the_database_is_back(tmp_path: Path) -> None:
    """Nothing of a reload during an outage is lost, and it is noted once."""
    settings = load_settings({"HEADRACE_STATE_DIR": str(tmp_path / "s"), "HOME": str(tmp_path)})
    settings.run_dir.mkdir(parents=True)
    url, config, clock = f"sqlite:///{settings.database_path}", tmp_path / "headrace.yaml", SystemClock()
    migrate(url)
    database = open_database(url)
    keys = KeySource(KeyStore(database, clock), url, settings, lambda: None)
    source = CallerSource(keys, EntryStore(database, clock), database, clock, settings)
    config.write_text(CONFIG)
    assert source.note_declared(load_declaration(config, environ={}))
    away = settings.database_path.with_name("away")
    settings.database_path.rename(away)
    settings.database_path.mkdir()
    config.write_text(CONFIG.replace("weight: 1", "weight: 2"))
    source.declared = load_declaration(config, environ={})
    source.read_overlay()
    assert source.declared is not None
    settings.database_path.rmdir()
    away.rename(settings.database_path)
    for _ in range(3):
        source.read_overlay()
    assert source.declared is None
    assert [entry.action for entry in read_audit(database)] == ["tenant.change", "declaration.adopt"]
    database.close()
