"""The values of a body are counted before any of them is made."""

import json

import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.entry.body_bounds import BodyBounds

BOUNDS = BodyBounds(fields=4, values=10)


def passes(body: str) -> bool:
    try:
        BOUNDS.check_values(body.encode())
    except RequestError as error:
        return error.code is not ErrorCode.INVALID_REQUEST or "gateway.limits.body_values" not in error.message
    return True


@pytest.mark.parametrize(
    "frame", ['{{"a":[{}]}}', '{{"x":"\\"","a":[{}]}}', '{{"x":"\\\\","a":[{}]}}', '{{"x":"[,{{\\\\\\"","a":[{}]}}']
)
@pytest.mark.parametrize("value", ["{}", '""', '"a,b"', "[]", "true", '"\\\\\\",{["'])
def test_values_are_counted_wherever_they_stand(frame: str, value: str) -> None:
    """Ten pass and one more does not, whatever stands inside of strings beside them."""
    room = 10 - 2 - (frame.count('",'))
    each = 2 if value in ("{}", "[]") else 1
    most = (room + 1) // each
    assert passes(frame.format(",".join([value] * most)))
    assert not passes(frame.format(",".join([value] * (most + 1))))


@pytest.mark.parametrize("text", [",{[" * 50, '"' * 50, "\\" * 51, '\\"' * 50, ',\\",' * 50, "é,{[" * 50, ""])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_text_is_no_value(text: str, is_ascii: bool) -> None:
    """Brackets and commas of a text pass, however it is written."""
    assert passes(json.dumps({"a": text, "b": [text, text]}, ensure_ascii=is_ascii))


@pytest.mark.parametrize("separator", [",", ", ", "\n, "])
def test_ten_numbers_in_a_row_are_one(separator: str) -> None:
    """A prompt of tokens has ten times the room."""
    assert passes('{"prompt":[' + separator.join(["-1"] * 81) + "]}")
    assert not passes('{"prompt":[' + separator.join(["-1"] * 100) + "]}")


@pytest.mark.parametrize("body", ["[" * 50, '{"a":",' + "," * 50, ",", '{"a":"' + "\\" * 51, "[1," * 30])
def test_what_is_no_json_is_judged_all_the_same(body: str) -> None:
    """Broken text is counted as far as it goes, and refused by the parser."""
    assert passes(body) in (True, False)
