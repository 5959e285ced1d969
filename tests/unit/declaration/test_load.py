"""From a file to a declaration: which file, its bounds, and all problems at once."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.declaration.builtin import BUILTIN_MODEL, builtin_declaration
from headrace.declaration.load import find_declaration, in_memory, load_declaration
from headrace.declaration.model import Declaration, Model, Pool
from headrace.declaration.problem import DeclarationError
from headrace.declaration.yaml_tree import FILE_BYTES

TEXT = "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: openai, endpoints: ['http://127.0.0.1:1']}}\n"


def test_the_lookup_prefers_what_is_named(tmp_path: Path) -> None:
    """--config, then ./headrace.yaml, then $HEADRACE_CONFIG, then the built-in declaration."""
    environ = {"HEADRACE_CONFIG": "/elsewhere.yaml"}
    assert find_declaration(Path("x.yaml"), environ=environ, folder=tmp_path) == Path("x.yaml")
    assert find_declaration(None, environ=environ, folder=tmp_path) == Path("/elsewhere.yaml")
    assert find_declaration(None, environ={}, folder=tmp_path) is None
    (tmp_path / "headrace.yaml").touch()
    assert find_declaration(None, environ=environ, folder=tmp_path) == tmp_path / "headrace.yaml"


def test_no_file_is_the_built_in_declaration() -> None:
    """Without a file, the embedded engine serves the bundled model."""
    loaded = load_declaration(None, environ={})
    assert loaded.path is None
    assert loaded.declaration == builtin_declaration()
    assert list(loaded.declaration.models) == [BUILTIN_MODEL]
    assert loaded.warnings == ()


def test_a_file_gives_its_path_and_the_digest_of_its_text(tmp_path: Path) -> None:
    """What was loaded can be named and compared."""
    path = tmp_path / "x.yaml"
    path.write_text(TEXT)
    loaded = load_declaration(path, environ={})
    assert loaded.path == path
    assert loaded.digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert list(loaded.declaration.pools) == ["p"]


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    """Files from editors that write one load."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert load_declaration(path, environ={}).declaration.version == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"- a\n", "is not a mapping"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"#" * (FILE_BYTES + 1), f"is larger than {FILE_BYTES} bytes"),
    ],
)
def test_files_that_are_no_declaration(tmp_path: Path, content: bytes, said: str) -> None:
    """A wrong file is refused with its name and the reason."""
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(DeclarationError) as caught:
        load_declaration(path, environ={})
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    """A wrong --config says what to do."""
    with pytest.raises(DeclarationError, match="headrace init"):
        load_declaration(tmp_path / "nowhere.yaml", environ={})


def test_the_listing_reads_like_a_compilers(tmp_path: Path) -> None:
    """FILE:LINE:COLUMN, so that editors and people can jump to each problem."""
    path = tmp_path / "x.yaml"
    path.write_text(TEXT + "gatway: {}\nledger: {flush_interval_s: 0}\n")
    with pytest.raises(DeclarationError) as caught:
        load_declaration(path, environ={})
    lines = str(caught.value).splitlines()
    assert lines[0] == "the declaration cannot be used: 2 errors"
    assert lines[1] == f"{path}:4:1: error: gatway: there is no such key"
    assert lines[3] == f'{path}:5:28: error: ledger.flush_interval_s: must be above 0 to 60 (found "0")'


def test_a_declaration_in_memory_is_checked_too() -> None:
    """What --endpoint makes must be as sound as a file."""
    pool = Pool.model_validate({"model": "m", "engine": "openai", "endpoints": ["nonsense"]})
    with pytest.raises(DeclarationError, match="built-in declaration"):
        in_memory(Declaration(models={"m": Model()}, pools={"p": pool}))


def make_link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_link("not-mounted/headrace.yaml"), "it is a link to not-mounted/headrace.yaml, where there is nothing"),
        (make_link("headrace.yaml"), "it is a link that leads round in a circle"),
        (make_link("/dev/zero"), "it is a device, not a file"),
        (os.mkfifo, "it is a pipe (FIFO), not a file"),
        (Path.mkdir, "it is a folder, not a file"),
    ],
)
def test_what_is_there_and_no_file_is_named_as_what_it_is(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    """A volume that is not mounted is not "no file": the built-in declaration is not served in its place."""
    path = tmp_path / "headrace.yaml"
    make(path)
    assert find_declaration(None, environ={"HEADRACE_CONFIG": "/elsewhere.yaml"}, folder=tmp_path) == path
    with pytest.raises(DeclarationError) as caught:
        load_declaration(path, environ={})
    assert f"{path}" in str(caught.value)
    assert f"cannot be read: {said}" in str(caught.value)
    assert "headrace init" not in str(caught.value)


def test_a_link_to_a_file_is_as_good_as_the_file(tmp_path: Path) -> None:
    """As Kubernetes mounts it: a link to a link to the file."""
    (tmp_path / "real.yaml").write_text(TEXT)
    (tmp_path / "between.yaml").symlink_to("real.yaml")
    (tmp_path / "headrace.yaml").symlink_to("between.yaml")
    assert load_declaration(tmp_path / "headrace.yaml", environ={}).path == tmp_path / "headrace.yaml"


def test_a_secret_in_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """`check` ends, and says what is there instead of the file."""
    os.mkfifo(tmp_path / "key")
    path = tmp_path / "headrace.yaml"
    path.write_text(TEXT.replace("endpoints:", "credentials: {bearer: '${file:key}'}, endpoints:"))
    with pytest.raises(DeclarationError, match="the file key cannot be read: it is a pipe"):
        load_declaration(path, environ={})
