"""What judging a body may cost, whatever it holds: the number of its values and of its top-level fields is bounded.

A body is skipped over by compiled code at some nanoseconds a byte, but each value that a look at it meets costs Python
some hundred. Both bounds are checked before anything of the body becomes an object.
"""

import re
from dataclasses import dataclass

from headrace.domain.errors import ErrorCode, RequestError

NUMBERS_OF_ONE = 10
"""Numbers in a row that count as one value: looked over, they cost a tenth of others, and a prompt of tokens is a
million of them. Chosen."""
_STRING = rb'"(?>(?:[^"]*+"(?<=[^\\]\\"))*+[^"]*+"(?<=[^\\]")|(?:[^"\\]*+(?:\\.[^"\\]*+)*+"))'
"""The first form is five times as quick, and cannot end beside two backslashes in a row."""
_VALUE = rb'(?>[^",{\[]*+(?:%b[^",{\[]*+)*+(?:[{\[]|(?:,[ \n\r\t]*+[-0-9][^,\[\]{}"]*+){1,%d}+|,))' % (
    _STRING,
    NUMBERS_OF_ONE,
)
"""Up to and with the next sign that a value begins: a bracket, a comma, or some commas before numbers."""

_SIGNS = (b"{", b"[", b",")


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Of one gateway plan. Pure."""

    fields: int
    values: int

    def check_values(self, body: bytes) -> None:
        """Before the body is decoded. Raises: RequestError INVALID_REQUEST.

        1. A body of so few bytes has no room for more.
        2. Nor has one with so few brackets and commas, wherever they stand: long texts and pictures end here.
        3. What stands inside of strings does not count.
        """
        if len(body) <= self.values or not _has_more_signs(body, self.values):
            return
        if re.compile(rb"(?:%b){%d}+" % (_VALUE, self.values + 1), re.DOTALL).match(body) is not None:
            message = (
                f"the body holds more than {self.values} values, the most that are taken "
                "(gateway.limits.body_values); send less at once"
            )
            raise RequestError(ErrorCode.INVALID_REQUEST, message)

    def too_many_fields(self, count: int) -> RequestError:
        """The refusal of a body with more than `fields` of them."""
        message = (
            f"the body has {count} top-level fields; {self.fields} are the most that are taken "
            "(gateway.limits.body_fields)"
        )
        return RequestError(ErrorCode.INVALID_REQUEST, message)


def _has_more_signs(body: bytes, most: int) -> bool:
    """Whether there are more than `most` brackets and commas. Replacing them finds them with the C library's search,
    which passes over text that has few of them twice as fast as `count`, and ends where there are too many.
    """
    left = most
    for sign in _SIGNS:
        left -= len(body) - len(body.replace(sign, b"", left + 1))
        if left < 0:
            return True
    return False
