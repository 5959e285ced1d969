"""docs/preflight.md: every finding that `headrace check` can make, and every text of a capture."""

import re
from pathlib import Path

from headrace.fleet.deploy.preflight.questions import QUESTIONS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "preflight.md").read_text()
CORE = ROOT / "src" / "headrace" / "fleet" / "deploy" / "preflight" / "core"


def test_every_finding_is_explained() -> None:
    """An operator finds each code of the output on the page."""
    source = "\n".join(path.read_text() for folder in (CORE, CORE.parent) for path in folder.glob("*.py"))
    codes = set(re.findall(r"\b(?:ok|warn|fail)\(\s*\"([a-z-]+)\"", source)) | set(
        re.findall(r'code="([a-z-]+)"', source)
    )
    codes |= {"engine-file", "compute-capability", "listen", "control"}
    assert len(codes) > 20
    assert [code for code in sorted(codes) if f"`{code}`" not in PAGE] == []


def test_every_text_of_a_capture_is_listed() -> None:
    """Who writes a capture by hand knows each command."""
    assert [name for name in QUESTIONS if f"| `{name}` |" not in PAGE] == []
