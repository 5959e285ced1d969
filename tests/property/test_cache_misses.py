"""Two prompts compared: equal ones never differ, and the first place that differs is always found."""

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cache_misses.core.compare import compare, shared_content
from headrace.cache_misses.core.fingerprint import Fingerprint, FingerprintMaker
from headrace.cache_misses.core.segments import Segment, UnreadableError, segments_of
from headrace.domain.request import ApiDialect

texts = st.one_of(
    st.text(max_size=60),
    st.from_regex(r"(It is 2026-1[0-2]-\d\dT\d\d:\d\d now\. |Ask [0-9a-f]{16}\. |[a-z ]{40}\. ){1,6}", fullmatch=True),
    st.integers(50, 6_000).map(lambda size: ("all the corn of the mill, " * 240)[:size]),
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "clerk"])
contents = st.one_of(texts, st.lists(texts.map(lambda text: {"type": "text", "text": text}), max_size=3))
messages = st.lists(st.fixed_dictionaries({"role": roles, "content": contents}), min_size=1, max_size=6)
schemas = st.dictionaries(st.sampled_from("day page sack wheel".split()), texts, max_size=4)
tools = st.lists(schemas.map(lambda schema: {"type": "function", "function": schema}), max_size=3)
bodies = st.fixed_dictionaries({"messages": messages, "tools": tools})
maker = FingerprintMaker(b"a secret of the tests, not of an instance")


def segments(body: dict[str, Any], **how: Any) -> list[Segment]:
    fields = msgspec.json.decode(json.dumps(body, **how), type=dict[str, msgspec.Raw])
    return list(segments_of(fields, ApiDialect.CHAT_COMPLETIONS))


def taken(body: dict[str, Any], **how: Any) -> Fingerprint:
    return maker.make(segments(body, **how), None)


@given(bodies)
def test_equal_prompts_never_differ(body: dict[str, Any]) -> None:
    """However its JSON is written, a prompt does not differ from itself, and nothing of it is lost."""
    one, other = taken(body), taken(body, indent=2, ensure_ascii=False)
    assert compare(one, other) is None
    assert shared_content(one, other).after_bytes == 0


@given(bodies, messages)
def test_a_next_turn_is_no_difference(body: dict[str, Any], more: list[Any]) -> None:
    """A conversation that goes on does not part from what it was before."""
    longer = body | {"messages": [*body["messages"], *(message | {"role": "user"} for message in more)]}
    leads = all(message["role"] == "system" for message in body["messages"])
    if not (leads and more and body["tools"]):
        assert compare(taken(body), taken(longer)) is None


@settings(max_examples=150)
@given(bodies, bodies)
def test_the_first_segment_that_differs_is_found(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Whatever two prompts are, the segment and the byte where they part are named, within the stated grain."""
    mine, theirs = segments(old), segments(new)
    keys = [[(each.place.role, each.place.kind, each.text) for each in one] for one in (mine, theirs)]
    first = next((at for at, (a, b) in enumerate(zip(*keys, strict=False)) if a != b), min(map(len, keys)))
    found = compare(maker.make(mine, None), maker.make(theirs, None))
    if first == min(map(len, keys)):
        assert found is None or found.place.field.startswith("tools[")
        return
    assert found is not None
    assert found.segment == first
    assert found.place == theirs[first].place
    a, b = mine[first].text, theirs[first].text
    byte = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if a == b:
        byte = 0
    assert found.byte_offset <= byte < found.byte_offset + max(found.grain_bytes, 1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
messages_of_any_kind = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "x"]), values, max_size=4) | values, max_size=4
)


@given(
    st.dictionaries(
        st.sampled_from(["messages", "tools", "prompt", "system", "input", "instructions", "chat_template_kwargs"]),
        messages_of_any_kind | values,
        max_size=5,
    ),
    st.sampled_from(list(ApiDialect)),
)
def test_no_body_is_too_strange(body: dict[str, Any], dialect: ApiDialect) -> None:
    """Whatever callers send, its fingerprint is taken, or it is said to be no prompt."""
    fields = msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])
    try:
        prompt = maker.make(segments_of(fields, dialect))
    except UnreadableError:
        return
    assert compare(prompt, prompt) is None
