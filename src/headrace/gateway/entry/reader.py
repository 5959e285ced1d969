"""Body bytes to an InferenceRequest: JSON decoded once, checked, and otherwise left as it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.endpoints.serving import ServedModel, output_limit_aliases
from headrace.gateway.entry.body_bounds import BodyBounds
from headrace.gateway.entry.duplicates import has_duplicate_keys
from headrace.gateway.entry.fields import FieldPolicy, shown_name
from headrace.gateway.entry.media import PLAIN, MediaPolicy
from headrace.gateway.entry.routes import Route
from headrace.gateway.entry.shaping import Shaper
from headrace.gateway.entry.token_estimate import TokenEstimates

FindPin = Callable[[str], str | None]
"""Given a `previous_response_id`, the endpoint that knows it, or None."""

T = TypeVar("T")
_decode_text = msgspec.json.Decoder(str).decode
_decode_flag = msgspec.json.Decoder(bool | None).decode
_decode_number = msgspec.json.Decoder(int | None).decode
_decode_id = msgspec.json.Decoder(str | None).decode
_decode_options = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
EMBEDDINGS, RESPONSES = ApiDialect.EMBEDDINGS, ApiDialect.RESPONSES
"""Module names: looking a member up on its class costs a tenth of a microsecond."""
CHOICE_FIELDS = frozenset({"n", "best_of"})
"""How many answers are asked for, on any API."""
LARGEST_NUMBER = 2**31 - 1
"""Of output tokens and of answers. Engines keep them in 32 bits; no context is as long."""
LONG_BODY_BYTES = 65536
"""Shorter ones have no room for names that would take long."""
LONGEST_NAME = 1024
"""Characters of a top-level field's name; those of thirty million held the loop up for a quarter second. Chosen."""
_NO_MEDIA = frozenset({EMBEDDINGS, ApiDialect.COMPLETIONS})


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model found to be served at a path, and what its requests may hold without a closer look."""

    name: str
    model: ServedModel
    plain_fields: frozenset[str]


class RequestReader:
    """Reads request bodies by one gateway plan. Pure; built once per plan."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        fields: FieldPolicy,
        media: MediaPolicy,
        shaper: Shaper,
        estimates: TokenEstimates,
        bounds: BodyBounds,
    ) -> None:
        self._bounds = bounds
        self._shaper = shaper
        self._estimates = estimates
        self._models = models
        self._fields = fields
        self._media = media
        self._limit_names = output_limit_aliases()
        self._number_names = self._limit_names | CHOICE_FIELDS
        self._decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._known: dict[tuple[bytes, str], KnownModel] = {}
        """By the model's name as it stands in the body, and the path."""

    def read(
        self,
        body: bytes,
        route: Route,
        dialect: ApiDialect,
        find_pin: FindPin,
        regions: frozenset[str] | None = None,
    ) -> InferenceRequest:
        """Read one body. Raises: RequestError, naming the field and what is allowed."""
        fields = self._decode_fields(body)
        known = self._known.get((bytes(fields.get("model", b"")), route.path)) or self._find_served(
            fields, route, dialect
        )
        model = known.model
        is_shaped = not known.plain_fields.issuperset(fields) and self._fields.check(fields, dialect, model)
        content = PLAIN if dialect in _NO_MEDIA else self._media.check(fields)
        is_shaped |= content.ends_with_assistants
        is_stream = "stream" in fields and _flag(fields, "stream") and dialect is not EMBEDDINGS
        prompt_bytes, input_tokens = self._estimates.measure(
            known.name, dialect, fields, media=content.media, media_bytes=content.media_bytes
        )
        return InferenceRequest(
            dialect=dialect,
            path=route.path_bytes,
            requested_model=known.name,
            body=body,
            fields=fields,
            is_stream=is_stream,
            wants_usage=is_stream and _wants_usage(fields),
            output_limit_tokens=self._output_limit(fields),
            estimated_input_tokens=input_tokens,
            prompt_bytes=prompt_bytes,
            regions=regions,
            pinned_endpoint=_pinned_endpoint(fields, find_pin) if dialect is RESPONSES else None,
            rewrites=self._shaper.shape(fields, dialect, route.path, model, is_stream=is_stream) if is_shaped else None,
        )

    def _find_served(self, fields: Mapping[str, msgspec.Raw], route: Route, dialect: ApiDialect) -> KnownModel:
        name = self._model_name(fields)
        model = self._models.get(name)
        if model is None:
            raise model_not_found(name)
        if not model.pools_for(route.path):
            message = f"model {name!r} is not served at {route.path}: " + (
                _why_not_served(route.path, model) if model.pools else "no pool serves the model"
            )
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, message, param="model")
        known = KnownModel(name, model, self._fields.plain_fields(dialect, model))
        # Kept under its plain spelling only: there are many ways to escape a name, and callers must not fill memory.
        self._known[msgspec.json.encode(name), route.path] = known
        return known

    def _decode_fields(self, body: bytes) -> dict[str, msgspec.Raw]:
        if len(body) > self._bounds.values:  # no room for more otherwise: nearly all bodies
            self._bounds.check_values(body)
        try:
            if not body.isascii():
                body.decode()  # parsers skip what they are not asked for, and would let broken text through to engines
            fields = self._decode(body)
            if len(fields) > self._bounds.fields:
                raise self._bounds.too_many_fields(len(fields))
            if len(body) > LONG_BODY_BYTES and max(map(len, fields), default=0) > LONGEST_NAME:
                message = f"the body has a top-level field whose name is over {LONGEST_NAME} characters"
                raise RequestError(ErrorCode.INVALID_REQUEST, message)
            is_ambiguous = has_duplicate_keys(body, fields)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"the body is not a JSON object: {_reason(error)}") from None
        except RecursionError:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the body is nested too deeply") from None
        if is_ambiguous:
            message = "the body names a top-level field twice; parsers differ on which one counts, so send it once"
            raise RequestError(ErrorCode.INVALID_REQUEST, message)
        return fields

    def _model_name(self, fields: Mapping[str, msgspec.Raw]) -> str:
        raw = fields.get("model")
        if raw is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "field model is missing", param="model")
        return _typed(raw, _decode_text, "model", "a string")

    def _output_limit(self, fields: Mapping[str, msgspec.Raw]) -> int | None:
        """All aliases are one limit: two that disagree would let one of them be bypassed. What else caps and
        reservations count by is looked at beside it: an engine may take "5" or 5.0 for what is no number here.
        """
        names = self._number_names.intersection(fields)
        if not names:
            return None
        if len(names) == 1:
            (name,) = names
            limit = self._one_number(fields[name], name)
            return None if name in CHOICE_FIELDS else limit
        numbers = {name: self._one_number(fields[name], name) for name in names}
        limits = {name: number for name, number in numbers.items() if name not in CHOICE_FIELDS}
        given = {limit for limit in limits.values() if limit is not None}
        if len(given) > 1:
            shown = ", ".join(f"{name}={limit}" for name, limit in sorted(limits.items()) if limit is not None)
            message = f"output limits disagree: {shown}; give one"
            raise RequestError(ErrorCode.INVALID_REQUEST, message, param=min(limits))
        return given.pop() if given else None

    @staticmethod
    def _one_number(raw: msgspec.Raw, name: str) -> int | None:
        try:
            number = _decode_number(raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            shown = shown_name(bytes(raw)[:64].decode("utf-8", "replace"))
            message = f"field {name} is {shown}; it must be a whole number"
            raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name) from None
        if number is not None and number < 0:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{name} is {number}; give 0 or more", param=name)
        if number is not None and number > LARGEST_NUMBER:
            message = f"{name} is {bytes(raw)[:32].decode()}; give {LARGEST_NUMBER} or less"
            raise RequestError(ErrorCode.INVALID_REQUEST, message, param=name)
        return number


def _why_not_served(path: str, model: ServedModel) -> str:
    has_path = any(path in driver.dialect.paths for driver in model.drivers)
    if has_path and any(pool.isolates_tenants for pool in model.pools):
        return "its engines cannot keep tenants apart there (prefix_cache.tenant_isolation)"
    return "its engines do not have it"


def model_not_found(name: str) -> RequestError:
    """The refusal for a model that does not exist, or not for this caller: the two must look alike."""
    message = f"model {name[:128]!r} does not exist here or is not yours to use; GET /v1/models lists yours"
    return RequestError(ErrorCode.MODEL_NOT_FOUND, message, param="model")


def _flag(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    raw = fields.get(name)
    if raw is None:
        return False
    return bool(_typed(raw, _decode_flag, name, "true or false"))


def _wants_usage(fields: Mapping[str, msgspec.Raw]) -> bool:
    raw = fields.get("stream_options")
    if raw is None:
        return False
    options = _typed(raw, _decode_options, "stream_options", "an object")
    return _flag(options or {}, "include_usage")


def _pinned_endpoint(fields: Mapping[str, msgspec.Raw], find_pin: FindPin) -> str | None:
    raw = fields.get("previous_response_id")
    response_id = None if raw is None else _typed(raw, _decode_id, "previous_response_id", "a string")
    if response_id is None:
        return None
    endpoint = find_pin(response_id)
    if endpoint is None:
        message = "previous_response_id names an answer that no endpoint here is known to hold; send the whole input"
        raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param="previous_response_id")
    return endpoint


def _typed(raw: msgspec.Raw, decode: Callable[[msgspec.Raw], T], name: str, allowed: str) -> T:
    try:
        return decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"field {name} must be {allowed}", param=name) from None


def _reason(error: Exception) -> str:
    """The parser's reason; it names positions and kinds, never content."""
    return str(error)[:120]
