"""The pages of docs/ that are made from code say what the code says."""

import subprocess
from pathlib import Path

import pytest
from tools import generate_docs

ROOT = Path(__file__).resolve().parents[2]

NOT_FOR_OPERATORS = {
    *("HEADRACE_DB_PASSWORD", "HEADRACE_COMPLETE", "HEADRACE_HANDOVER", "HEADRACE_LEDGER_DATABASE"),
    *("HEADRACE_END", "HEADRACE_FILES", "HEADRACE_NODE", "HEADRACE_POSTGRES_PASSWORD"),
}
"""An example's name, what headrace's own processes tell each other, and what is in rendered files (docs/rendering.md).
"""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return generate_docs.make_pages()


@pytest.mark.parametrize("name", list(generate_docs.PAGES))
def test_a_generated_page_is_as_committed(name: str, pages: dict[str, str]) -> None:
    """A setting, error, metric or option cannot change without its page (mend it with `make docs`)."""
    assert (ROOT / name).read_text() == pages[name], f"{name} is stale: run `make docs`"


def test_generated_pages_say_so_on_their_first_line(pages: dict[str, str]) -> None:
    """Nobody edits a page that would be overwritten."""
    assert all(page.startswith(generate_docs.MARK) for page in pages.values())


def test_every_environment_variable_that_is_read_is_documented() -> None:
    """A HEADRACE_ variable in the sources is in docs/settings.md."""
    settings = (ROOT / "docs" / "settings.md").read_text()
    found = subprocess.run(
        ["grep", "-rhoE", "--include=*.py", "HEADRACE_[A-Z_]+[A-Z]", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert sorted(name for name in set(found) - NOT_FOR_OPERATORS if f"`{name}`" not in settings) == []
