"""One supervisor owns a state folder, and says on disk who it is."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.process_identity import own_identity
from headrace.fleet.deploy.state_files import (
    AlreadyRunningError,
    SupervisorFile,
    engine_state_path,
    file_stem,
    find_supervisor,
    lock_state,
    prepare_folders,
    read_supervisor_file,
    write_supervisor_file,
)
from headrace.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")
    prepare_folders(made)
    return made


def content() -> SupervisorFile:
    return SupervisorFile(
        process=own_identity(),
        version="1",
        started_at=1.5,
        config_file=None,
        on_supervisor_loss="keep",
        inference_url="http://127.0.0.1:1",
        control_url="http://127.0.0.1:2",
        declaration_digest="d",
        arguments=("--config", "/srv/headrace.yaml"),
    )


def test_the_running_supervisor_is_found(settings: Settings) -> None:
    """What the supervisor writes is what others read."""
    write_supervisor_file(settings, content())
    assert find_supervisor(settings) == content()
    assert settings.supervisor_file.stat().st_mode & 0o777 == 0o600


def test_the_file_of_an_older_version_is_read(settings: Settings) -> None:
    """It does not say what that supervisor was told to run, and is found all the same."""
    write_supervisor_file(settings, content())
    document = json.loads(settings.supervisor_file.read_text())
    del document["arguments"]
    settings.supervisor_file.write_text(json.dumps(document))
    found = find_supervisor(settings)
    assert found is not None
    assert found.arguments is None


def test_a_stale_file_is_no_supervisor(settings: Settings) -> None:
    """After a crash the pid in the file may belong to another process: it is not taken for the supervisor."""
    own = own_identity()
    stale = own._replace(start_ticks=own.start_ticks + 1)
    write_supervisor_file(settings, SupervisorFile(**{**_fields(content()), "process": stale}))
    assert find_supervisor(settings) is None
    assert read_supervisor_file(settings) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": 1}', '{"process": {"pid": 1}}'])
def test_a_broken_file_is_no_supervisor(settings: Settings, text: str) -> None:
    """Half a file, or another program's, is read as nothing."""
    settings.supervisor_file.write_text(text)
    assert find_supervisor(settings) is None


def test_a_second_supervisor_is_refused(settings: Settings) -> None:
    """The lock is held as long as its owner lives, and its pid is named to whoever comes second."""
    descriptor = lock_state(settings)
    with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"):
        lock_state(settings)
    os.close(descriptor)
    os.close(lock_state(settings))


def test_folders_are_for_this_user_alone(settings: Settings) -> None:
    """State holds keys' hashes and sockets: nobody else may look."""
    assert settings.state_dir.stat().st_mode & 0o777 == 0o700
    assert settings.run_dir.stat().st_mode & 0o777 == 0o700


def test_a_path_too_long_for_sockets_is_refused(tmp_path: Path) -> None:
    """Unix sockets have a short limit: it is found before anything is started."""
    settings = Settings(state_dir=tmp_path / ("x" * 100), cache_dir=tmp_path)
    with pytest.raises(OperatorError, match="too long for Unix sockets"):
        prepare_folders(settings)


@pytest.mark.parametrize("place", ["file", "file/state"])
def test_a_folder_that_cannot_be_made_is_named_with_the_setting(place: str) -> None:
    """Something else in its place, or no right to write: said with the variable that chooses another."""
    with TemporaryDirectory(prefix="hr-") as short:  # room for the names of sockets, however long pytest's own folder
        folder = Path(short)
        (folder / "file").touch()
        with pytest.raises(OperatorError, match=r"the state folder cannot be used: .*file") as caught:
            prepare_folders(Settings(state_dir=folder / place, cache_dir=folder))
    assert "HEADRACE_STATE_DIR" in str(caught.value.hint)


def test_names_become_files_one_to_one(settings: Settings) -> None:
    """Pool names that differ never share a file, whatever characters they hold."""
    names = ["a", "a/b", "a%2fb", "a:b", "a@b", "a-b", "A"]
    assert len({file_stem(name) for name in names}) == len(names)
    assert engine_state_path(settings, "a/b-0").parent == settings.run_dir


def _fields(record: SupervisorFile) -> dict[str, object]:
    return {name: getattr(record, name) for name in SupervisorFile.__dataclass_fields__}
