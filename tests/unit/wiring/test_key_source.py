"""Keys for the gateway: from the database, and from memory of it while it is away."""

from pathlib import Path

import pytest

from headrace.database.connect import open_database
from headrace.database.url import DatabaseError, sqlite_url
from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.load import in_memory
from headrace.domain.clock import SystemClock
from headrace.domain.tenant import Scope
from headrace.fleet.deploy.state_files import prepare_folders
from headrace.settings import Settings
from headrace.tenancy.key_store import KeyStore
from headrace.wiring.first_keys import first_admin_key_file, first_key_file, make_first_keys, take_first_keys
from headrace.wiring.key_source import KeySource, known_keys_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    prepare_folders(made)
    return made


def key_source(settings: Settings) -> tuple[KeySource, KeyStore]:
    url = sqlite_url(settings.database_path)
    store = KeyStore(open_database(url), SystemClock())
    loaded = in_memory(builtin_declaration())
    return KeySource(store, url, settings, lambda: make_first_keys(store, loaded, settings)), store


def test_a_first_start_makes_one_key_of_each_scope(settings: Settings) -> None:
    """A fresh instance has one inference key and one admin key, whose texts only this user can read."""
    source, _ = key_source(settings)
    assert sorted(record.scope for record in source.read()) == [Scope.ADMIN, Scope.INFERENCE]
    assert first_key_file(settings).stat().st_mode & 0o777 == 0o600
    shown = take_first_keys(settings, in_memory(builtin_declaration()))
    assert shown[Scope.INFERENCE].startswith("hr-")
    assert not first_admin_key_file(settings).exists(), "the admin key is shown once"
    assert first_key_file(settings).exists(), "the built-in declaration on loopback may show its key again"
    again, _ = key_source(settings)
    assert len(again.read()) == 2, "no more keys at the next start"


def test_a_change_is_seen_at_the_next_read(settings: Settings) -> None:
    """A revoked key counts no more from the very next read on; that it was one is still known."""
    source, store = key_source(settings)
    [first, second] = source.read()
    store.revoke_key(first.key_id)
    after = source.read()
    assert [one for one in after if one.revoked_at is None] == [second]
    assert [one.key_id for one in after if one.revoked_at is not None] == [first.key_id]


def test_a_database_that_goes_away_changes_nothing(settings: Settings) -> None:
    """While the database cannot be read, the last known keys count: in this process and in the next."""
    source, _ = key_source(settings)
    keys = source.read()
    settings.database_path.write_bytes(b"this is no database" * 100)
    for extra in ("-wal", "-shm"):
        settings.database_path.with_name(settings.database_path.name + extra).unlink(missing_ok=True)

    assert source.read() == keys
    restarted, _ = key_source(settings)
    assert restarted.read() == keys
    known_keys_file(settings).unlink()
    fresh, _ = key_source(settings)
    with pytest.raises(DatabaseError):
        fresh.read()


def test_what_is_remembered_holds_no_key(settings: Settings) -> None:
    """The copy on disk holds hashes, never a key's text."""
    source, _ = key_source(settings)
    source.read()
    secret = first_key_file(settings).read_text().strip()
    assert secret.rpartition("-")[2] not in known_keys_file(settings).read_text()
    assert known_keys_file(settings).stat().st_mode & 0o777 == 0o600
