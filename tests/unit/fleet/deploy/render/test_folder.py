"""A folder of rendered files: what changes is said, what is somebody else's stays."""

from pathlib import Path

import pytest

from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.render.core.model import RenderedFile
from headrace.fleet.deploy.render.folder import FileChange, iter_diff, plan_folder, write_folder


def _files(**texts: str) -> list[RenderedFile]:
    return [RenderedFile(path=f"etc/{name}.conf", text=text) for name, text in texts.items()]


def _changes(folder: Path, files: list[RenderedFile]) -> dict[str, FileChange]:
    return {one.path: one.change for one in plan_folder(folder, files)}


def test_a_folder_is_written_and_then_changed(tmp_path: Path) -> None:
    """Files are made, changed, left alone or taken away, and the plan says so before."""
    folder = tmp_path / "out"
    first = _files(same="1\n", changed="2\n", gone="3\n")
    assert set(_changes(folder, first).values()) == {FileChange.CREATED}
    assert not folder.exists()
    write_folder(folder, plan_folder(folder, first), is_forced=False)

    second = _files(same="1\n", changed="two\n", added="4\n")
    assert _changes(folder, second) == {
        "etc/same.conf": FileChange.UNCHANGED,
        "etc/changed.conf": FileChange.CHANGED,
        "etc/added.conf": FileChange.CREATED,
        "etc/gone.conf": FileChange.REMOVED,
    }
    write_folder(folder, plan_folder(folder, second), is_forced=False)
    assert {path.name: path.read_text() for path in (folder / "etc").iterdir()} == {
        "same.conf": "1\n",
        "changed.conf": "two\n",
        "added.conf": "4\n",
    }


def test_a_file_edited_by_hand_is_not_written_over(tmp_path: Path) -> None:
    """Edits and files of others are named, nothing at all is written, and --force replaces them."""
    write_folder(tmp_path, plan_folder(tmp_path, _files(a="1\n", b="1\n")), is_forced=False)
    (tmp_path / "etc/a.conf").write_text("edited\n")
    (tmp_path / "etc/c.conf").write_text("of somebody else\n")
    planned = plan_folder(tmp_path, _files(a="2\n", b="2\n", c="2\n"))
    with pytest.raises(OperatorError, match=r"etc/a\.conf, etc/c\.conf in .* are not as headrace wrote it") as refused:
        write_folder(tmp_path, planned, is_forced=False)
    assert refused.value.hint == "Look at them with --diff; --force replaces them."
    assert (tmp_path / "etc/b.conf").read_text() == "1\n"
    write_folder(tmp_path, planned, is_forced=True)
    assert (tmp_path / "etc/a.conf").read_text() == "2\n"


def test_a_file_no_longer_rendered_but_edited_stays(tmp_path: Path) -> None:
    """What somebody has edited is not taken away without --force."""
    write_folder(tmp_path, plan_folder(tmp_path, _files(a="1\n")), is_forced=False)
    (tmp_path / "etc/a.conf").write_text("edited\n")
    with pytest.raises(OperatorError, match=r"etc/a\.conf in .* is not as headrace wrote it"):
        write_folder(tmp_path, plan_folder(tmp_path, []), is_forced=False)


def test_the_difference_is_shown_as_a_patch(tmp_path: Path) -> None:
    """A unified diff from what is there to what would be."""
    write_folder(tmp_path, plan_folder(tmp_path, _files(a="1\n2\n")), is_forced=False)
    text = "".join(iter_diff(plan_folder(tmp_path, _files(a="1\nzwei\n"))))
    assert text == "--- a/etc/a.conf\n+++ b/etc/a.conf\n@@ -1,2 +1,2 @@\n 1\n-2\n+zwei\n"
