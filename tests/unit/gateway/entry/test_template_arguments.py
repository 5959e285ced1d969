"""Which arguments of the chat template callers may set."""

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.entry.template_arguments import NEVER, SWITCHES, check_template_arguments


def check(value: object, *, is_allowed: bool = False) -> ErrorCode | None:
    try:
        check_template_arguments(msgspec.Raw(msgspec.json.encode(value)), is_allowed=is_allowed)
    except RequestError as error:
        return error.code
    return None


@pytest.mark.parametrize("name", sorted(SWITCHES))
@pytest.mark.parametrize("value", [True, 1, 0.5, "low", None])
def test_switches_pass_with_plain_values(name: str, value: object) -> None:
    """Reasoning on, off, or how much."""
    assert check({name: value}) is None
    assert check({name: [value]}) is ErrorCode.UNSUPPORTED_PARAMETER


@pytest.mark.parametrize("name", sorted(NEVER))
def test_parameters_of_the_template_call_never_pass(name: str) -> None:
    """Whatever the operator allows."""
    assert check({"enable_thinking": True, name: False}, is_allowed=True) is ErrorCode.UNSUPPORTED_PARAMETER


def test_other_arguments_are_the_operators_choice() -> None:
    """Off unless allowed."""
    assert check({"own": {"a": 1}}) is ErrorCode.UNSUPPORTED_PARAMETER
    assert check({"own": {"a": 1}}, is_allowed=True) is None


@pytest.mark.parametrize("value", [None, {}])
def test_nothing_is_nothing(value: object) -> None:
    """Null and an empty object set nothing."""
    assert check(value) is None


@pytest.mark.parametrize("value", [1, "x", [], True])
def test_anything_but_an_object_is_the_callers_error(value: object) -> None:
    """Named, not passed on."""
    assert check(value) is ErrorCode.INVALID_REQUEST
