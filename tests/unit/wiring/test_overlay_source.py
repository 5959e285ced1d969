"""What the API has added, while its database comes and goes."""

from pathlib import Path

import pytest

from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.domain.admin import ITSELF
from headrace.domain.clock import SystemClock
from headrace.domain.quota import Level
from headrace.settings import Settings, load_settings
from headrace.tenancy.entry_store import EntryStore
from headrace.wiring.overlay_source import OverlaySource, known_tenants_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = load_settings({"HEADRACE_STATE_DIR": str(tmp_path / "s"), "HOME": str(tmp_path)})
    made.run_dir.mkdir(parents=True)
    return made


@pytest.fixture
def store(settings: Settings):
    url = f"sqlite:///{settings.database_path}"
    migrate(url)
    database = open_database(url)
    yield EntryStore(database, SystemClock())
    database.close()


def lose(settings: Settings) -> None:
    for path in settings.database_path.parent.glob(f"{settings.database_path.name}*"):
        path.unlink()
    settings.database_path.mkdir()


def test_a_change_is_seen_at_the_next_look(store, settings):
    """By one cheap question while nothing changes."""
    source = OverlaySource(store, settings)
    assert source.read().is_empty
    store.suspend(Level.TENANT, "a", "", tenant="a", by=ITSELF)
    assert [one.name for one in source.read().suspensions] == ["a"]


def test_without_the_database_what_was_last_read_counts(store, settings):
    """Nobody who was suspended is taken again."""
    store.suspend(Level.TENANT, "a", "", tenant="a", by=ITSELF)
    source = OverlaySource(store, settings)
    before = source.read()
    lose(settings)
    assert source.read() == before


def test_a_restart_without_the_database_knows_what_was_known(store, settings):
    """From run/, private to this user."""
    store.suspend(Level.TENANT, "a", "", tenant="a", by=ITSELF)
    before = OverlaySource(store, settings).read()
    assert known_tenants_file(settings).stat().st_mode & 0o777 == 0o600
    lose(settings)
    assert OverlaySource(store, settings).read() == before


def test_a_first_start_without_the_database_has_nothing(store, settings):
    """And a broken copy is as good as none."""
    lose(settings)
    assert OverlaySource(store, settings).read().is_empty
    known_tenants_file(settings).write_bytes(b"{")
    assert OverlaySource(store, settings).read().is_empty
