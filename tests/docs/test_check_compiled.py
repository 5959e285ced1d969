"""The check of modules that may be compiled finds what a compiler takes otherwise than Python does."""

from pathlib import Path

import pytest
from tools.check_compiled import SOURCE, find_heirs, find_problems, read_modules

METER = """
class Meter:
    def take(self): ...
"""


def problems(folder: Path, text: str, elsewhere: str = "") -> list[str]:
    path = folder / "module.py"
    path.write_text(text)
    return list(find_problems(path, text + elsewhere, folder))


def test_what_may_be_compiled_is_there() -> None:
    """The list in pyproject.toml names modules that exist, each once."""
    modules = read_modules()
    assert len(set(modules)) == len(modules) > 0
    assert all(module.exists() for module in modules)


@pytest.mark.parametrize(
    ("text", "elsewhere", "word"),
    [
        ("class Line(msgspec.Struct, frozen=True):\n    x: int\n", "", "options"),
        ("class Line(msgspec.Struct):\n    x: int | None\n", "_decode = Decoder(Line).decode", "decoded"),
        ("class Line(Record):\n    x: int | None\n", "msgspec.json.decode(body, type=list[Line])", "decoded"),
        (METER + "    charge = take\n", "", "second name"),
        ("class Line:\n    state: object = None\n", "", "object"),
    ],
)
def test_each_trap_is_named(tmp_path: Path, text: str, elsewhere: str, word: str) -> None:
    """Whoever writes what would not mean the same when compiled is told what to write."""
    found = problems(tmp_path, text, elsewhere)
    assert len(found) == 1
    assert word in found[0]


def test_what_means_the_same_passes(tmp_path: Path) -> None:
    """A record that is only made, a method, a constant of a class."""
    text = METER + "    LIMIT = 3\nclass Line(Record):\n    x: int | None\n    state: object | None = None\n"
    assert problems(tmp_path, text) == []


def test_heirs_of_compiled_classes_are_named() -> None:
    """Compiled code would refuse what is made of a class that is derived where nothing is compiled."""
    compiled, other = SOURCE / "ledger" / "buffer.py", SOURCE / "ledger" / "heir.py"
    heir = "from headrace.ledger.buffer import RecordBuffer\nclass Heir(RecordBuffer): ...\n"
    assert len(list(find_heirs([compiled], {other: heir}))) == 1
    assert list(find_heirs([compiled, other], {other: heir})) == []
