"""The hand-written pages: links lead somewhere, names exist, lists are complete."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headrace"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def prose(text: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown viewer makes of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text()), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


PAGES = tracked("*.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file, and a heading where it has an anchor."""
    broken: list[str] = []
    for found in LINK.finditer(prose(page.read_text())):
        link = found[1] or found[2]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_modules_named_in_the_architecture_exist() -> None:
    """ARCHITECTURE.md names no module or folder that is gone."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+\.py)`", text))
    assert len(named) > 15
    assert (
        sorted(name for name in named - {"core/"} if not (SOURCE / name).exists() and not (ROOT / name).exists()) == []
    )


def test_every_package_is_in_the_architecture() -> None:
    """A package of the tree is introduced in ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = sorted({path.parent.name for path in SOURCE.glob("*/[a-z]*.py")} | {"fleet"})
    assert [name for name in packages if f"`{name}/`" not in text] == []


def declared_dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = [
        *project["project"]["dependencies"],
        *(entry for extra in project["project"]["optional-dependencies"].values() for entry in extra),
        *(entry for group in project["dependency-groups"].values() for entry in group),
    ]
    return {re.split(r"[\s\[<>=!~;]", entry)[0].lower().replace("_", "-") for entry in listed}


def test_every_dependency_says_why_it_is_there() -> None:
    """docs/dependencies.md has a line for each dependency of pyproject.toml, and for no other."""
    text = (ROOT / "docs" / "dependencies.md").read_text()
    explained = {name.lower().replace("_", "-") for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)}
    assert explained == declared_dependencies()


def test_both_readmes_have_the_same_commands() -> None:
    """README.md and README.zh-CN.md differ in language only: their code blocks are equal."""
    blocks = [
        re.findall(r"^```.*?^```$", path.read_text() if path.exists() else "", flags=re.MULTILINE | re.DOTALL)
        for path in (ROOT / "README.md", ROOT / "README.zh-CN.md")
    ]
    assert blocks[0] == blocks[1]


MACHINE_PATH = re.compile(rb"(?<![\w./$}-])/(?:work|root|opt|home|Users|private)/[\w.-]+")
PATHS_IN_IMAGES = (b"/opt/tritonserver",)
"""Where other people's images keep their programs."""


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    """What is committed works anywhere: no absolute path of a home or build folder."""
    named: list[str] = []
    for path in tracked():
        content = path.read_bytes()
        if b"\0" in content[:1024]:
            continue
        found = [one for one in MACHINE_PATH.findall(content) if one not in PATHS_IN_IMAGES]
        named += [f"{path.relative_to(ROOT)}: {one.decode()}" for one in found]
    assert named == []


def test_every_decision_is_listed_with_its_number() -> None:
    """docs/decisions holds consecutive numbers, each with context, choice, alternatives, and what would change it."""
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text()
        for heading in ("## Context", "## Choice", "## Alternatives", "## What would change our mind"):
            assert heading in text, f"{path.name} lacks {heading}"
