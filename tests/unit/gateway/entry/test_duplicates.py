"""No top-level key may come twice, however it is written."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.entry.duplicates import has_duplicate_keys


def judged(body: bytes) -> bool:
    return has_duplicate_keys(body, msgspec.json.decode(body, type=dict[str, msgspec.Raw]))


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'{ "a" : 1, "a" : 2 }',
        b'{"a":1,"\\u0061":2}',
        b'{"model":"m","mod\\u0065l":"n"}',
        '{"é":1,"é":2}'.encode(),
        '{"é":1,"\\u00e9":2}'.encode(),
        b'{"":1,"":2}',
        b'{"a":{"x":1},"a":[]}',
        b'{ "a":12,"a":1}',
        b'{ "a":1,"a":12}',
        b'{ "a":1, "b":2, "\\u0061":1}',
        b'{ "x":"%b","a":1,"a":1}' % (b"y" * 10_000),
    ],
)
def test_a_second_occurrence_is_found(body: bytes) -> None:
    """Compact, pretty, escaped, non-ASCII or empty: a key named twice is found."""
    assert judged(body)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"a":1}',
        b' { "a" : 1 , "b" : 2 } ',
        b'{"a":{"b":1,"b":2},"b":1}',
        b'{"a":"{\\"a\\":1,\\"a\\":2}"}',
        '{"é":1,"e":2}'.encode(),
        b'{"a":1,"A":2}',
        b'\n{ "a" : [ 1 , 2 ] , "b":"\\"}" ,"c\\n": true }\t',
        b' { "x" : "%b" , "a" : 1 } ' % (b"y" * 10_000),
    ],
)
def test_what_comes_once_passes(body: bytes) -> None:
    """White space, nested objects and text that looks like JSON are no duplicates of the top level."""
    assert not judged(body)


@given(st.dictionaries(st.text(max_size=6), st.integers() | st.text(max_size=6), min_size=1, max_size=6), st.data())
def test_any_repeated_key_is_found_and_nothing_else(fields: dict[str, object], data: st.DataObject) -> None:
    """Whatever the keys and the white space, exactly the bodies with a repeated key are refused."""
    is_pretty = data.draw(st.booleans())
    is_ascii = data.draw(st.booleans())
    separators = (", ", ": ") if is_pretty else (",", ":")
    body = json.dumps(fields, separators=separators, ensure_ascii=is_ascii)
    again = json.dumps(data.draw(st.sampled_from(sorted(fields))), ensure_ascii=data.draw(st.booleans()))
    try:
        raw = body.encode()
    except UnicodeEncodeError:  # a lone surrogate is no JSON
        return
    assert not judged(raw)
    assert judged(f"{body[:-1]},{again}:0}}".encode())
