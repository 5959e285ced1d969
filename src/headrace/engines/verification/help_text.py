"""Reading the flags out of an engine's --help: argparse (vLLM, SGLang), click (trtllm-serve), llama-server's own.

All of them begin an option's entry near the left margin and put its explanation far to the right; a name within an
explanation is no flag. Pure; whatever the text is, it returns.
"""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"^ {0,6}(?=-)")
"""argparse and click indent entries by two, llama-server by none."""

_GAP = re.compile(r" {2,}|\t")
"""Between an entry and its explanation."""

_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z](?:[\w.-]*\w)?")
_BANNER = re.compile(r"^-{3,}.*-{3,}$")
_USAGE_FLAG = re.compile(r"\[?(--[A-Za-z][\w.-]*\w)")
_RICH_EDGE = re.compile(r"^[│|]\s?(.*?)\s*[│|]?$")
_DEPRECATED = re.compile(r"\bdeprecated\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpFacts:
    """The flags a --help shows."""

    flags: frozenset[str]
    """Every spelling: aliases, short ones and the `--no-` forms."""
    deprecated: frozenset[str]
    """Those whose explanation says so."""

    def has(self, flag: str) -> bool:
        return flag in self.flags


def read_help(text: str) -> HelpFacts:
    """Read every flag of a --help.

    1. A line that begins with a flag, indented by at most six, is an entry; its flags stand before the first gap of
       two blanks, and before values in brackets.
    2. llama-server breaks long lists of aliases: a line that ends with a comma goes on in the next.
    3. `[no-]name` and `--name / --no-name` are both forms.
    4. Flags of the usage line count where no entries follow (a short help).
    """
    flags: set[str] = set()
    deprecated: set[str] = set()
    current: list[str] = []
    is_going_on = False
    for raw in text.splitlines():
        line = _without_frame(raw)
        if is_going_on or (_ENTRY.match(line) and not _BANNER.match(line.strip())):
            head, explanation = _split(line)
            found = _flags_of(head)
            current = [*current, *found] if is_going_on else found
            flags.update(found)
            is_going_on = head.rstrip().endswith(",")
        else:
            explanation = line
        if current and _says_deprecated(explanation):
            deprecated.update(current)
    if not flags:
        flags.update(_USAGE_FLAG.findall(text))
    return HelpFacts(flags=frozenset(flags), deprecated=frozenset(deprecated))


def _without_frame(line: str) -> str:
    """Take the box away that click's rich form draws around entries."""
    match = _RICH_EDGE.match(line.rstrip())
    return match[1] if match else line.rstrip()


def _split(line: str) -> tuple[str, str]:
    """Part an entry from its explanation. `-h,    --help` of llama-server is one list all the same."""
    stripped = line.strip()
    end = 0
    for gap in _GAP.finditer(stripped):
        if not stripped[: gap.start()].endswith(",") or not stripped[gap.end() :].startswith("-"):
            end = gap.start()
            break
    return (stripped[:end], stripped[end:]) if end else (stripped, "")


def _flags_of(head: str) -> list[str]:
    if "[no-]" in head:
        head = head.replace("[no-]", "") + " " + head.replace("[no-]", "no-")
    before_values = re.sub(r"\{[^}]*\}|<[^>]*>|\[[^\]]*\]", " ", head)
    return _FLAG.findall(before_values)


def _says_deprecated(explanation: str) -> bool:
    """An explanation that begins with the word speaks of its own flag; further on it may speak of a value."""
    match = _DEPRECATED.search(explanation)
    return match is not None and match.start() <= len(explanation) - len(explanation.lstrip()) + 2
