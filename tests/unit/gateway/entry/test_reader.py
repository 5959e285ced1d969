"""Bodies to requests: what is read, and what is refused with which field named."""

from typing import Any

import msgspec
import pytest

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.endpoints.serving import serving_table
from headrace.gateway.entry.body_bounds import BodyBounds
from headrace.gateway.entry.fields import FieldPolicy
from headrace.gateway.entry.media import MediaPolicy
from headrace.gateway.entry.reader import RequestReader
from headrace.gateway.entry.routes import ROUTES
from headrace.gateway.entry.shaping import Shaper
from headrace.gateway.entry.token_estimate import TokenEstimates


def make_reader(*, unknown_fields: str = "forward", allow_gated: tuple[str, ...] = ()) -> RequestReader:
    pools = {"p": {"model": "m", "engine": "llamacpp", "endpoints": ["http://127.0.0.1:1"]}}
    declaration = Declaration.model_validate({"models": {"m": {}, "idle": {}}, "pools": pools})
    table = serving_table(compile_gateway_plan(declaration, {"p": ()}, revision=1))
    return RequestReader(
        table,
        FieldPolicy(unknown_fields=unknown_fields, allow_gated=allow_gated),
        MediaPolicy(()),
        Shaper(allow_gated),
        TokenEstimates(),
        BodyBounds(fields=256, values=100_000),
    )


def read(body: bytes | dict[str, Any], path: bytes = b"/v1/chat/completions", **policy: Any) -> InferenceRequest:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    route = ROUTES[path]
    assert route.dialect is not None
    return make_reader(**policy).read(raw, route, route.dialect, {"resp_known": "p/1"}.get)


def refusal(body: bytes | dict[str, Any], path: bytes = b"/v1/chat/completions", **policy: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        read(body, path, **policy)
    return refused.value


def body_with(**fields: object) -> dict[str, object]:
    return {"model": "m", "messages": [], **fields}


def test_a_plain_request_is_understood() -> None:
    """No stream, no limit, no pin; the bytes are kept as sent."""
    body = b' {"model": "m", "messages": []}\n'
    request = read(body)
    assert (request.dialect, request.requested_model, request.body) == (ApiDialect.CHAT_COMPLETIONS, "m", body)
    assert (request.is_stream, request.wants_usage, request.output_limit_tokens) == (False, False, None)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"null", b'{"model":"m"} x', b'{"model":"\xff"}', b"nan"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """Broken or other JSON is the caller's error."""
    assert refusal(body).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("broken", [b"\x80", b"\xf8", b"\xc3", b"\xed\xa0\x80"])
def test_a_body_that_is_no_utf_8_is_refused_wherever_it_is_broken(broken: bytes) -> None:
    """In a name, in the depth of a message, or in its text: no engine has to find out."""
    whole = b'{"model":"m","messages":[{"role":"user","content":"hello","x":{"y":["z"]}}],"own":{"k":"v"}}'
    for place in range(len(whole)):
        error = refusal(whole[:place] + broken + whole[place + 1 :])
        assert error.code is ErrorCode.INVALID_REQUEST


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    """A body of 100,000 brackets is an error of the caller, whichever field holds it."""
    for start in (b'{"model":"m","messages":', b'{ "model":"m","messages":'):
        assert refusal(start + b"[" * 100_000 + b"]" * 100_000 + b"}").code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("fields", [{}, {"model": None}, {"model": 1}, {"model": ["m"]}])
def test_the_model_must_be_named(fields: dict[str, object]) -> None:
    """Missing or of the wrong type names the field."""
    error = refusal(fields)
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, "model")


def test_models_that_nobody_serves_are_told_apart() -> None:
    """Unknown is 404 for the model; without a pool, or with engines lacking the path, for the route."""
    assert refusal({"model": "none"}).code is ErrorCode.MODEL_NOT_FOUND
    assert refusal({"model": "idle"}).code is ErrorCode.ROUTE_NOT_FOUND


def test_a_field_named_twice_is_refused() -> None:
    """Also where one of the two is escaped."""
    assert refusal(b'{"model":"m","model":"m"}').code is ErrorCode.INVALID_REQUEST
    assert refusal(b'{"model":"m","max_tokens":1,"max\\u005ftokens":9}').code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 1}, 1),
        ({"max_completion_tokens": 7}, 7),
        ({"n_predict": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": 5, "n_predict": None}, 5),
        ({"max_tokens": 2**31 - 1}, 2**31 - 1),
    ],
)
def test_one_output_limit_under_all_its_names(fields: dict[str, object], limit: int | None) -> None:
    """Null is no limit; equal ones are one; a huge one is the engine's to judge."""
    assert read(body_with(**fields)).output_limit_tokens == limit


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 5, "n_predict": 6},
        {"max_tokens": 5, "max_completion_tokens": 0},
        {"max_tokens": -1},
        {"n_predict": -1},
        {"max_tokens": 1.5},
        {"max_tokens": "5"},
        {"max_tokens": True},
        {"max_tokens": [5]},
    ],
)
def test_a_limit_that_could_be_bypassed_is_refused(fields: dict[str, object]) -> None:
    """Disagreeing, negative (endless, for llama.cpp) or no whole number."""
    error = refusal(body_with(**fields))
    assert error.code is ErrorCode.INVALID_REQUEST
    assert error.param in fields


@pytest.mark.parametrize(
    ("options", "wants_usage"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": None}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
        ({"include_usage": True, "other": [1]}, True),
    ],
)
def test_stream_options_of_every_shape(options: object, wants_usage: bool) -> None:
    """Usage is wanted only where the caller said so, and only in a stream."""
    assert read(body_with(stream=True, stream_options=options)).wants_usage is wants_usage
    assert not read(body_with(stream_options=options)).wants_usage


@pytest.mark.parametrize("fields", [{"stream": 1}, {"stream": "yes"}, {"stream": True, "stream_options": [1]}])
def test_a_flag_is_true_or_false(fields: dict[str, object]) -> None:
    """Guessing would make a stream of what the caller reads whole."""
    assert refusal(body_with(**fields)).code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["priority", "id_slot", "cache_salt", "kv_transfer_params"])
@pytest.mark.parametrize("value", [None, 1, {"x": 1}])
def test_owned_fields_are_refused(name: str, value: object) -> None:
    """Whatever their value, and whatever the policy on unknown fields."""
    error = refusal(body_with(**{name: value}), unknown_fields="forward")
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED_PARAMETER, name)


def test_an_escaped_owned_field_is_refused() -> None:
    """Spelling it otherwise in JSON does not hide it."""
    assert refusal(b'{"model":"m","id\\u005fslot":1}').param == "id_slot"


def test_unknown_fields_follow_the_policy() -> None:
    """Forwarded or refused by name, never dropped; the name in the message is short and printable."""
    assert read(body_with(brand_new=1), unknown_fields="forward").fields["brand_new"] == msgspec.Raw(b"1")
    assert refusal(body_with(brand_new=1), unknown_fields="refuse").param == "brand_new"
    odd = refusal(body_with(**{"a\n" + "b" * 500: 1}), unknown_fields="refuse")
    assert odd.param is not None
    assert len(odd.param) == 64
    assert "\n" not in odd.message


@pytest.mark.parametrize("name", ["background", "conversation"])
def test_fields_that_need_state_are_refused(name: str) -> None:
    """Nothing here could keep it."""
    assert refusal({"model": "m", "input": "x", name: "c"}, b"/v1/responses").param == name


def test_an_answer_is_continued_only_where_it_is_known() -> None:
    """A known id pins the endpoint; an unknown one is refused; null is none."""
    body = {"model": "m", "input": "x"}
    assert read({**body, "previous_response_id": "resp_known"}, b"/v1/responses").pinned_endpoint == "p/1"
    assert read({**body, "previous_response_id": None}, b"/v1/responses").pinned_endpoint is None
    assert refusal({**body, "previous_response_id": "x"}, b"/v1/responses").code is ErrorCode.UNSUPPORTED_PARAMETER


@pytest.mark.parametrize("value", [b'"5"', b"5.0", b"5e0", b"1e1", b"true", b"[2]", b"-1", b"2147483648", b"9" * 310])
@pytest.mark.parametrize("name", ["n", "best_of", "max_tokens"])
@pytest.mark.parametrize(
    "path", [b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages", b"/v1/embeddings"]
)
def test_a_number_that_limits_count_by_must_be_one(path: bytes, name: str, value: bytes) -> None:
    """What an engine might take for a number, and headrace for none, is refused by name and value on every API."""
    error = refusal(b'{"model":"m","messages":[],"%b":%b}' % (name.encode(), value), path)
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, name)
    assert value[:32].decode() in error.message


@pytest.mark.parametrize("value", [b"null", b"0", b"1", b"2147483647"])
def test_numbers_up_to_32_bits_are_the_engines_to_judge(value: bytes) -> None:
    """Whole numbers and null pass, and `n` is no output limit."""
    assert read(b'{"model":"m","messages":[],"n":%b}' % value).output_limit_tokens is None
    limit = read(b'{"model":"m","messages":[],"n":2,"max_tokens":%b}' % value).output_limit_tokens
    assert limit == (None if value == b"null" else int(value))


@pytest.mark.parametrize(("count", "passes"), [(254, True), (255, False)])
def test_top_level_fields_are_bounded(count: int, passes: bool) -> None:
    """256 fields pass, `model` and `messages` among them; one more is refused by the limit's name."""
    body = body_with(**{f"f{number}": 1 for number in range(count)})
    if passes:
        assert len(read(body).fields) == 256
    else:
        assert "gateway.limits.body_fields" in refusal(body).message


@pytest.mark.parametrize("number", [b"1e400", b"-1e999", b"9" * 5000])
@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (b"/v1/chat/completions", "messages", b'[{"role":"user","content":[{"n":%b}]}]'),
        (b"/v1/chat/completions", "messages", b'[{"role":"user","content":"x","n":[%b]}]'),
        (b"/v1/chat/completions", "messages", b"[%b]"),
        (b"/v1/chat/completions", "something_else", b'{"n":%b}'),
        (b"/v1/responses", "input", b'[{"n":%b}]'),
        (b"/v1/messages", "system", b'[{"n":%b}]'),
    ],
)
def test_numbers_out_of_range_are_the_callers_fault(path: bytes, field: str, value: bytes, number: bytes) -> None:
    """A number that nothing can hold is refused with its field's name, and is no bug of ours."""
    refused = refusal(b'{"model":"m","%b":%b}' % (field.encode(), value % number), path)
    assert (refused.code, refused.param) == (ErrorCode.INVALID_REQUEST, field)


def test_a_name_that_would_take_long_is_refused() -> None:
    """A field's name may have 1,024 characters, in a body long enough to have far longer ones."""
    rest = {"x": "y" * 70_000}
    assert read(body_with(**{"n" * 1024: 1}, **rest)).requested_model == "m"
    assert refusal(msgspec.json.encode(body_with(**{"n" * 1025: 1}, **rest))).code is ErrorCode.INVALID_REQUEST
