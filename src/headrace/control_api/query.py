"""Values from a request's query string, each refused by name where it is not what it should be."""

from enum import StrEnum
from typing import TypeVar

from starlette.requests import Request

from headrace.domain.errors import ErrorCode, RequestError

_Choice = TypeVar("_Choice", bound=StrEnum)


def read_choice(request: Request, name: str, kind: type[_Choice], default: _Choice) -> _Choice:
    """One of `kind`'s values. Raises: RequestError."""
    named = request.query_params.get(name, default.value)
    try:
        return kind(named)
    except ValueError as error:
        message = f'{name}="{named[:40]}" is none of {", ".join(kind)}'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name) from error


def read_moment(request: Request, name: str, default: float) -> float:
    """UTC epoch seconds. Raises: RequestError."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        moment = float(text)
    except ValueError:
        moment = float("nan")
    if not -1e11 < moment < 1e11:
        message = f'{name}="{text[:40]}" is no number (UTC epoch seconds)'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name)
    return moment


def find_number(request: Request, name: str, *, low: int, high: int) -> int | None:
    """A whole number, where one is given. Raises: RequestError."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and low <= int(text[:12]) <= high):
        message = f'{name}="{text[:40]}" is no whole number from {low} to {high}'
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name)
    return int(text)


def read_flag(request: Request, name: str) -> bool:
    """Whether `?name=true` was said. Raises: RequestError."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise RequestError(ErrorCode.INVALID_REQUEST, f'{name}="{text[:40]}" is neither true nor false', param=name)
    return text == "true"
