"""What a single request may ask for: caps of all levels together, and their refusals. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.quota import NO_CAPS, RequestCaps
from headrace.domain.request import InferenceRequest
from headrace.domain.undecodable import UNDECODABLE

_IMAGE_TYPES = frozenset({"image_url", "input_image", "image"})
"""Types of content parts: chat completions, Responses, Messages."""
_decode = msgspec.json.decode


def tightest(caps: Iterable[RequestCaps]) -> RequestCaps | None:
    """The lowest of each cap; None where nothing is capped."""
    names = RequestCaps.__struct_fields__
    of_all = list(caps)
    lowest = RequestCaps(
        **{
            name: min((cap for one in of_all if (cap := getattr(one, name)) is not None), default=None)
            for name in names
        }
    )
    return None if lowest == NO_CAPS else lowest


def check_caps(caps: RequestCaps, request: InferenceRequest, choices: int) -> None:
    """Raises: RequestError, naming the cap and what was asked for."""
    size = len(request.body)
    if caps.body_bytes is not None and size > caps.body_bytes:
        message = f"the body has {size} bytes; per_request.body_bytes is {caps.body_bytes} for this key"
        raise RequestError(ErrorCode.BODY_TOO_LARGE, message)
    output, limit = request.output_limit_tokens, caps.output_tokens
    if limit is not None and output is not None and output > limit:
        raise _over("output_tokens", output, limit, param="max_tokens")
    if caps.choices is not None and choices > caps.choices:
        raise _over("choices", choices, caps.choices, param="n")
    if caps.context_tokens is not None:
        context = request.estimated_input_tokens + (output if output is not None else limit or 0)
        if context > caps.context_tokens:
            message = (
                f"input (about {request.estimated_input_tokens} tokens) and output limit together are {context} "
                f"tokens; per_request.context_tokens is {caps.context_tokens} for this key"
            )
            raise RequestError(ErrorCode.CONTEXT_TOO_LONG, message)
    if caps.tools is not None and (tools := _tools(request.fields)) > caps.tools:
        raise _over("tools", tools, caps.tools, param="tools")
    if caps.images is not None and (images := _images(request.fields)) > caps.images:
        raise _over("images", images, caps.images, param="messages")


def _over(name: str, asked: int, cap: int, *, param: str) -> RequestError:
    message = f"the request asks for {asked} {name}; per_request.{name} is {cap} for this key"
    return RequestError(ErrorCode.INVALID_REQUEST, message, param=param)


def _tools(fields: Mapping[str, msgspec.Raw]) -> int:
    """`functions` is what tools were called once; engines that take them by name, in an object, get as many."""
    given = [_read(name, fields[name]) for name in ("tools", "functions") if name in fields]
    return sum([len(cast("list[Any]", tools)) for tools in given if isinstance(tools, list | dict)])


def _read(name: str, raw: msgspec.Raw) -> Any:
    """What is under a cap must be counted. Raises: RequestError where it cannot be."""
    try:
        return _decode(raw)
    except UNDECODABLE as error:
        message = f"field {name} is nested too deeply, or holds a number out of range"
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name) from error


def _images(fields: Mapping[str, msgspec.Raw]) -> int:
    return sum(_count_images(_read(name, fields[name])) for name in ("messages", "input") if name in fields)


def _count_images(node: Any) -> int:
    """Content parts that are pictures, wherever they stand (a tool's result may hold some)."""
    count, left = 0, [node]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            parts = cast("dict[str, Any]", one)
            kind = parts.get("type")
            count += isinstance(kind, str) and kind in _IMAGE_TYPES
            left += parts.values()
        elif isinstance(one, list):
            left += [inner for inner in cast("list[Any]", one) if isinstance(inner, dict | list)]
    return count
