"""Reading YAML into a tree: places, bounds, and no surprises."""

import pytest

from headrace.declaration.yaml_tree import MAX_DEPTH, Mapping, Mark, YamlSyntaxError, plain_value, read_tree, to_value


def read(text: str) -> object:
    root = read_tree(text)
    assert root is not None
    return to_value(root)


def slips(text: str) -> list[tuple[int, str]]:
    with pytest.raises(YamlSyntaxError) as caught:
        read_tree(text)
    return [(slip.mark.line, slip.message) for slip in caught.value.slips]


def test_values_follow_yaml_1_2() -> None:
    """A model called "no", a port pair and a leading zero are read as they look."""
    assert read("a: no\nb: 12:30\nc: 010\nd: 0x10\ne: 1.5\nf: ~\ng: true\nh: '1'\ni: 1e3\nj: .inf") == {
        "a": "no",
        "b": "12:30",
        "c": 10,
        "d": 16,
        "e": 1.5,
        "f": None,
        "g": True,
        "h": "1",
        "i": 1000.0,
        "j": ".inf",
    }


def test_keys_are_always_text() -> None:
    """A pool may be called 7 or true."""
    assert read("7: a\ntrue: b\nnull: c") == {"7": "a", "true": "b", "null": "c"}


def test_every_value_knows_its_place() -> None:
    """Messages can name line and column of a key and of its value."""
    root = read_tree("a:\n  b: x\n")
    assert isinstance(root, Mapping)
    inner = root.entries["a"]
    assert isinstance(inner, Mapping)
    assert inner.key_marks["b"] == Mark(2, 3)
    assert inner.entries["b"].mark == Mark(2, 6)


def test_a_key_given_twice_is_refused_with_both_places() -> None:
    """Of two equal keys none wins silently."""
    with pytest.raises(YamlSyntaxError) as caught:
        read_tree("a: 1\nb: 2\na: 3\n")
    (slip,) = caught.value.slips
    assert (slip.mark, slip.message, slip.hint) == (
        Mark(3, 1),
        'the key "a" is given twice',
        "It is already on line 1.",
    )


def test_aliases_and_merge_keys_work() -> None:
    """One pool may take over the settings of another and override some, before or after the merge."""
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {y: 4, <<: *a}\nd: *a\n"
    assert read(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 4},
        "d": {"x": 1, "y": 2},
    }


def test_nested_aliases_cannot_grow_without_bound() -> None:
    """A few lines of aliases of aliases (billion laughs) are refused, quickly."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert slips("\n".join(lines)) == [(5, "more than 100000 values (aliases expanded)")]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: [1", 2, "not valid YAML"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: 1\n\tb: 2", 2, "not valid YAML"),
        ("a: *x", 1, "no anchor"),
        ("a: &a [*a]", 1, "inside the value it repeats"),
        ("a: !!python/object:os.system x", 1, "tags"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("? [a]\n: 1", 1, "plain word"),
        ('a: "\\ud800"', 1, "not valid YAML"),
        ("a: \x00", 1, "not valid YAML"),
        ('b: 1\na: ["x\\0y"]', 2, "NUL"),
        ('b: 1\n"x\\0y": 1', 2, "NUL"),
        ("a: {<<: 1}", 1, "<< takes"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, line: int, said: str) -> None:
    """Broken YAML is a message with a place, never a traceback."""
    (found,) = slips(text)
    assert found[0] == line
    assert said in found[1]


def test_depth_is_bounded() -> None:
    """One level too deep is refused, the deepest allowed is read."""
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert slips("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) == [(1, f"nested deeper than {MAX_DEPTH} levels")]


def test_nothing_is_none() -> None:
    """An empty file and one of comments hold no tree."""
    assert read_tree("") is None
    assert read_tree("# nothing\n") is None


def test_huge_numbers_stay_text() -> None:
    """A number that no setting could hold costs nothing, and fails later as text."""
    assert plain_value("9" * 400) == "9" * 400
    assert plain_value("1e999") == "1e999"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\tb: 2", "There is a tab"),
        ("a: 1\n\tb: 2", "There is a tab"),
        ("a:\n  b: 1\n\tc: 2", "There is a tab"),
        ("a: @b", "Quote a text that begins with @"),
        ("a: `b`", "Quote a text that begins with `"),
        ("a: b: c", "quote texts that contain"),
        ("a: 1\nb\n", "colon"),
        ('a: "b', "never closed"),
        ('a: "C:\\models"', "backslash"),
        ("a: - b", "line of its own"),
        ("a:\n    b: 1\n  c: 2", "one column"),
        ("a:\n  - b\n  c: 2", "`- `"),
        ("a: [1, 2\nb: 3", "comma"),
    ],
)
def test_a_slip_of_the_pen_has_its_remedy(text: str, hint: str) -> None:
    """What people usually get wrong in YAML is said with what to do, not only in the parser's words."""
    with pytest.raises(YamlSyntaxError) as caught:
        read_tree(text)
    assert hint in str(caught.value.slips[0].hint)
