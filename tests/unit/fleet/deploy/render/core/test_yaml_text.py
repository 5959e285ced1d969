"""YAML that reads back as what it was made from."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.declaration.yaml_tree import read_tree, to_value
from headrace.fleet.deploy.render.core.yaml_text import Noted, yaml_text

SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), TREES, max_size=4))
def test_any_tree_reads_back(tree: dict[str, object]) -> None:
    """Whatever is written is read as the same by YAML 1.1."""
    assert yaml.safe_load(yaml_text(tree)) == tree


@pytest.mark.parametrize(
    "text",
    [
        *("", "yes", "No", "null", "~", "1e3", "0x10", "010", "1_000", "12:30", "2026-11-30", "- a", "a: b", "a #b"),
        *("*x", "&x", "!x", "%x", "@x", "`x", "{x", "[x", "|", ">", "line\nline", "line\n\n", " lead\nx", "x\n ", "-"),
        *(
            "--flag",
            "-c",
            "http://a:1/b?c",
            "a: ",
            ":a",
            "=",
            "<<",
            "\ttab",
            "\u2028",
            "\x85",
            "bell\a",
            "Ünïcode 漢字",
        ),
    ],
)
def test_text_stays_text(text: str) -> None:
    """Words that YAML takes for something else are quoted, for YAML 1.1 and 1.2."""
    written = yaml_text({"key": text, "list": [text]})
    assert yaml.safe_load(written) == {"key": text, "list": [text]}
    node = read_tree(yaml_text({"key": text}))
    assert node is not None
    assert to_value(node) == {"key": text}


def test_comments_stand_above_what_they_are_about() -> None:
    """A comment says where a value comes from, on keys and list items alike."""
    tree = {"a": Noted(1, "pools.a"), "b": [Noted({"c": 2}, "pools.b"), Noted("x", "two\nlines")]}
    expected = "# head\n# pools.a\na: 1\nb:\n  # pools.b\n  - c: 2\n  # two\n  # lines\n  - x\n"
    assert yaml_text(tree, head=["head"]) == expected
    assert yaml.safe_load(expected) == {"a": 1, "b": [{"c": 2}, "x"]}


def test_long_text_is_a_block() -> None:
    """A file within a file can be read and compared line by line."""
    assert yaml_text({"content": "a: 1\n\n  b\n"}) == "content: |\n  a: 1\n\n    b\n"
