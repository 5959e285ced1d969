"""The field policy: owned, gated, safe, refused and unknown fields, for every dialect."""

import msgspec
import pytest

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.gateway.endpoints.serving import ServedModel, serving_table
from headrace.gateway.entry.fields import API_FIELDS, REFUSED, FieldPolicy

ENGINES = ("vllm", "sglang", "tensorrt-llm", "llamacpp", "openai")
GATED = "chat_template"


def model_on(*engines: str) -> ServedModel:
    pools = {
        f"p{number}": {"model": "m", "engine": engine, "endpoints": [f"http://engine-{number}:8000"]}
        for number, engine in enumerate(engines)
    }
    declaration = Declaration.model_validate({"models": {"m": {}}, "pools": pools})
    return serving_table(compile_gateway_plan(declaration, dict.fromkeys(pools, ()), revision=1))["m"]


def policy(*, unknown_fields: str = "forward", allow_gated: tuple[str, ...] = ()) -> FieldPolicy:
    return FieldPolicy(unknown_fields=unknown_fields, allow_gated=allow_gated)


def check(judge: FieldPolicy, name: str, dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS, *engines: str) -> None:
    judge.check({"model": msgspec.Raw(b'"m"'), name: msgspec.Raw(b"1")}, dialect, model_on(*(engines or ("vllm",))))


def refusal(judge: FieldPolicy, name: str, dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS, *engines: str) -> str:
    with pytest.raises(RequestError) as refused:
        check(judge, name, dialect, *engines)
    assert refused.value.code is ErrorCode.UNSUPPORTED_PARAMETER
    assert refused.value.param == name
    return refused.value.message


@pytest.mark.parametrize("dialect", ApiDialect)
def test_fields_of_the_api_pass(dialect: ApiDialect) -> None:
    """What the public API has is never refused, even where unknown fields are."""
    judge = policy(unknown_fields="refuse")
    passing = API_FIELDS[dialect] - REFUSED.keys()
    fields = dict.fromkeys(passing, msgspec.Raw(b"null"))
    for engine in ENGINES:
        judge.check(fields, dialect, model_on(engine))


@pytest.mark.parametrize("name", ["priority", "cache_salt", "id_slot", "kv_transfer_params"])
@pytest.mark.parametrize("dialect", ApiDialect)
def test_owned_fields_are_refused_whatever_the_engine(dialect: ApiDialect, name: str) -> None:
    """A field that one engine obeys is kept from all: a request may be answered by any of a model's engines."""
    for engine in ENGINES:
        assert "set by the gateway" in refusal(policy(allow_gated=(name,)), name, dialect, engine)


def test_gated_fields_pass_where_an_operator_says_so() -> None:
    """Off by default, with the key that switches them on."""
    assert "gateway.fields.allow_gated" in refusal(policy(), GATED)
    check(policy(allow_gated=(GATED,)), GATED)
    check(policy(allow_gated=(GATED,), unknown_fields="refuse"), GATED)


@pytest.mark.parametrize("name", REFUSED)
def test_fields_that_need_state_say_why(name: str) -> None:
    """Nothing of the kind is kept here; the caller reads what to do instead."""
    assert REFUSED[name] in refusal(policy(), name, ApiDialect.RESPONSES)


def test_unknown_fields_are_forwarded_or_refused_by_name() -> None:
    """As the operator says; never dropped in silence."""
    check(policy(), "brand_new_knob")
    message = refusal(policy(unknown_fields="refuse"), "brand_new_knob")
    assert "brand_new_knob" in message
    assert "'m'" in message


def test_what_one_of_the_models_engines_understands_is_known() -> None:
    """A field of llama.cpp passes where llama.cpp is one of the model's engines, and only there."""
    strict = policy(unknown_fields="refuse")
    check(strict, "min_p", ApiDialect.CHAT_COMPLETIONS, "llamacpp")
    check(strict, "min_p", ApiDialect.CHAT_COMPLETIONS, "openai", "llamacpp")
    refusal(policy(unknown_fields="refuse"), "min_p", ApiDialect.CHAT_COMPLETIONS, "openai")


def test_the_first_of_several_is_named_whatever_their_order() -> None:
    """The same body always gives the same answer."""
    fields = {name: msgspec.Raw(b"1") for name in ("priority", "cache_salt")}
    for order in (fields, dict(reversed(fields.items()))):
        with pytest.raises(RequestError) as refused:
            policy().check(order, ApiDialect.CHAT_COMPLETIONS, model_on("vllm"))
        assert refused.value.param == "cache_salt"


def test_a_name_is_shown_short_and_printable() -> None:
    """What a caller invents does not fill logs or draw on terminals."""
    with pytest.raises(RequestError) as refused:
        check(policy(unknown_fields="refuse"), "\x1b[2J" + "x" * 500)
    assert "\x1b" not in refused.value.message
    assert len(refused.value.message) < 300
