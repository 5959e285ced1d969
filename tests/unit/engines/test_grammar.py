"""Grammars and choices put into another engine's words: only where both provably mean the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.grammar import as_grammar, as_regex, nesting_depth, portable
from headrace.engines.structured_output import NESTING_DEPTH, CannotSayError, Constraint, ConstraintKind


def grammar(text: str) -> Constraint:
    return Constraint(kind=ConstraintKind.GRAMMAR, field="grammar", shown="grammar", text=text)


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "yes" | "no"',
        'root ::= word (" " word)*\nword ::= [a-z]+ | "\\"" [^A-Z]? "\\\\"\n',
        'root ::= "(" inner ")"\ninner ::= root | "x"\n',
        'root ::= a\n\na ::= "1" b?\nb ::= "2" a',
    ],
)
def test_a_grammar_of_the_shared_core_is_carried_over(text: str) -> None:
    """It stays as it is, letter for letter."""
    assert portable(grammar(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "start: WORD",  # Lark
        'start ::= "a"',  # no root
        'root ::= "a" |',  # an empty alternative
        'root ::= ""',
        'root ::= | "a"',
        'root ::= "a"{2,3}',  # bounded repetition
        'root ::= "a"**',
        'root ::= ("a"',
        'root ::= "a")',
        "root ::= .",  # any character: llama.cpp only
        'root ::= "\\x41"',  # escapes of one engine
        "root ::= [\\n]",
        "root ::= [z-a_b-]",
        'root ::= "é"',
        'root ::= my_name\nmy_name ::= "a"',  # no underscore in GBNF
        'root ::= a-b\na-b ::= "a"',  # no hyphen in Lark
        "root ::= other",  # not defined
        'root ::= "a"\nroot ::= "b"',  # twice
        'root ::= "a" # why',
        'root ::= "a"\n  | "b"',  # over two lines
        'root ::= root "a" | "b"',  # begins with itself
        'root ::= a "x"\na ::= "y"? root',  # through another, after what may be empty
        'root ::= ("a"* | "b") root',
        "root ::= " + "(" * (NESTING_DEPTH + 2) + '"a"' + ")" * (NESTING_DEPTH + 2),
    ],
)
def test_any_other_grammar_is_refused(text: str) -> None:
    """What engines read differently, or one of them not at all, is refused, whatever it is."""
    with pytest.raises(CannotSayError):
        portable(grammar(text))


def test_the_refusal_says_where() -> None:
    """Callers learn the line."""
    with pytest.raises(CannotSayError, match="line 2 of grammar"):
        portable(grammar('root ::= a\na ::= "x" %\n'))


CHOICES = st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True).map(tuple)


@given(choices=CHOICES, other=st.text())
def test_a_choice_as_a_regular_expression_is_exact(choices: tuple[str, ...], other: str) -> None:
    """It matches each choice and nothing else, or is refused for characters that an engine may read otherwise."""
    try:
        pattern = as_regex(choices)
    except CannotSayError:
        assert not all(choice.isprintable() for choice in choices)
        return
    assert all(re.fullmatch(pattern, choice) for choice in choices)
    assert (re.fullmatch(pattern, other) is not None) is (other in choices)


@given(choices=CHOICES)
def test_a_choice_as_a_grammar_is_exact(choices: tuple[str, ...]) -> None:
    """Its strings, read back, are the choices; where they are ASCII it is of the common core itself."""
    try:
        text = as_grammar(choices)
    except CannotSayError:
        return
    strings = re.findall(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    unescaped = {"\\n": "\n", "\\r": "\r", "\\t": "\t", '\\"': '"', "\\\\": "\\"}
    read_back = [re.sub(r'\\["\\nrt]', lambda escape: unescaped[escape[0]], string) for string in strings]
    assert tuple(read_back) == choices
    if all(choice.isascii() for choice in choices):
        assert portable(grammar(text)) == text


@pytest.mark.parametrize(("text", "depth"), [("", 0), ("a", 0), ("(a)", 1), ("([{}])", 3), ("()()", 1), ("))((", 2)])
def test_nesting_is_counted(text: str, depth: int) -> None:
    """Brackets of every kind; ones that close nothing take nothing away."""
    assert nesting_depth(text) == depth
