"""Grammars and choices, put from one engine's words into another's where the two provably mean the same. Pure.

GBNF (llama.cpp), EBNF (XGrammar) and Lark look alike and differ in names, escapes, repetition and left recursion. Only
a grammar of their common core is carried over, as it stands; `docs/engine-differences.md` says what that is.
"""

import re

from headrace.engines.structured_output import NESTING_DEPTH, CannotSayError, Constraint

_RULE = re.compile(r"([a-z][a-z0-9]*) ::= (.+)")
_LITERAL = re.compile(
    r'"(?:[ !#-\[\]-~]|\\["\\nrt])+"|'
    r"\[\^?(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9 !#$%&()*+,.:;<=>?@_{|}~])+\]"
)
"""Strings and classes of printable ASCII: in strings five escapes, in classes none."""
_NAME = re.compile(r"[a-z][a-z0-9]*")
_SPACES = re.compile(r" *")
_REGEX_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()]")
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def portable(constraint: Constraint) -> str:
    """Return the grammar where all engines read it alike. Raises: CannotSayError, with the line and why.

    1. One rule a line, `name ::= alternatives`; names of lower-case letters and digits, each defined once, with `root`.
    2. Alternatives of sequences of strings, classes, names and (groups), each with at most one of * + ?; none empty.
    3. No rule begins with itself, be it through others or after something that may be empty.
    """
    first: dict[str, set[str]] = {}
    used: set[str] = {"root"}
    for number, line in enumerate(constraint.text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {number} of {constraint.shown}"
        rule = _RULE.fullmatch(line.rstrip())
        if rule is None or rule[1] in first:
            raise CannotSayError(f"may not read {where} as another engine does")
        reader = _Alternatives(rule[2], where)
        reader.read()
        first[rule[1]] = reader.first
        used |= reader.used
    if missing := used - first.keys():
        raise CannotSayError(f"finds no rule {min(missing)!r} in {constraint.shown}")
    _refuse_left_recursion(first, constraint.shown)
    return constraint.text


def as_grammar(choices: tuple[str, ...]) -> str:
    """A grammar of the common core whose sentences are exactly `choices`. Raises: CannotSayError."""
    escaped = ["".join(_ESCAPED.get(letter, letter) for letter in choice) for choice in choices]
    if not all(choice.isprintable() for choice in escaped):
        raise CannotSayError("takes no choices with control characters")
    return "root ::= " + " | ".join(f'"{choice}"' for choice in escaped)


def as_regex(choices: tuple[str, ...]) -> str:
    """A regular expression that matches exactly `choices`. Raises: CannotSayError."""
    if not all(choice.isprintable() for choice in choices):
        raise CannotSayError("takes no choices with control characters")
    return "(" + "|".join(_REGEX_SPECIAL.sub(r"\\\g<0>", choice) for choice in choices) + ")"


def nesting_depth(text: str) -> int:
    """Deepest brackets of any kind in a grammar or regular expression, at most; escapes and strings are counted too."""
    depth = deepest = 0
    for letter in text:
        if letter in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in ")]}" and depth:
            depth -= 1
    return deepest


class _Alternatives:
    """Reads the right side of one rule. Raises: CannotSayError where it is not of the common core."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self.used: set[str] = set()
        """Names that it refers to."""
        self.first: set[str] = set()
        """Those among them that it may begin with."""

    def read(self) -> None:
        self._read_alternatives(depth=0, is_first=True)
        if self._at < len(self._text):
            self._refuse()

    def _read_alternatives(self, *, depth: int, is_first: bool) -> bool:
        """Returns whether what follows may still be the beginning."""
        if depth > NESTING_DEPTH:
            raise CannotSayError(f"takes at most {NESTING_DEPTH} brackets within each other ({self._where})")
        stays_first = self._read_sequence(depth=depth, is_first=is_first)
        while self._take("|"):
            stays_first |= self._read_sequence(depth=depth, is_first=is_first)
        return stays_first

    def _read_sequence(self, *, depth: int, is_first: bool) -> bool:
        items = 0
        while self._peek() not in ("", "|", ")"):
            can_stay = self._read_item(depth=depth, is_first=is_first)
            is_repeated = self._peek()
            if is_repeated and is_repeated in "*+?":
                self._at += 1
            is_first = is_first and (can_stay or is_repeated in ("*", "?"))
            items += 1
        if not items:
            self._refuse()
        return is_first

    def _read_item(self, *, depth: int, is_first: bool) -> bool:
        self._skip_spaces()
        if literal := _LITERAL.match(self._text, self._at):
            self._at = literal.end()
            return False
        if name := _NAME.match(self._text, self._at):
            self._at = name.end()
            self.used.add(name[0])
            if is_first:
                self.first.add(name[0])
            return True  # the rule may match nothing
        if self._take("("):
            stays_first = self._read_alternatives(depth=depth + 1, is_first=is_first)
            if not self._take(")"):
                self._refuse()
            return stays_first
        return self._refuse()

    def _take(self, mark: str) -> bool:
        is_there = self._peek() == mark
        self._at += is_there
        return is_there

    def _peek(self) -> str:
        self._skip_spaces()
        return self._text[self._at : self._at + 1]

    def _skip_spaces(self) -> None:
        if spaces := _SPACES.match(self._text, self._at):
            self._at = spaces.end()

    def _refuse(self) -> bool:
        raise CannotSayError(f"may not read {self._where} as another engine does, from character {self._at + 1} on")


def _refuse_left_recursion(first: dict[str, set[str]], shown: str) -> None:
    for start in first:
        seen: set[str] = set()
        pending = list(first[start])
        while pending:
            name = pending.pop()
            if name == start:
                raise CannotSayError(f"takes no rule that begins with itself ({start!r} in {shown})")
            if name not in seen:
                seen.add(name)
                pending.extend(first[name])
