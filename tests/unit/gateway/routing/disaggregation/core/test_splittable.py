"""Which requests can be handed over."""

import msgspec
import pytest

from headrace.domain.request import ApiDialect
from headrace.gateway.routing.disaggregation.core.splittable import find_split_bar

CHAT, COMPLETIONS = ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS


def bar(members: dict[str, object], dialect: ApiDialect = CHAT) -> str | None:
    fields = msgspec.json.decode(msgspec.json.encode(members), type=dict[str, msgspec.Raw])
    return find_split_bar(fields, dialect)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("best_of", 3),
        ("use_beam_search", True),
        ("prompt_logprobs", 0),
        ("echo", True),
        ("return_token_ids", True),
        ("kv_transfer_params", {}),
        ("bootstrap_room", 7),
        ("id_slot", 0),
    ],
)
def test_what_decode_could_not_answer_stays_whole(name: str, value: object) -> None:
    """Several choices, words about the prompt, a caller's own hand-over: the field is named; null is nothing."""
    assert bar({name: value}) == name
    assert bar({name: None}) is None


def test_usual_requests_can_be_split() -> None:
    """Sampling, tools, structured output, log-probabilities of the answer: decode does them as if alone."""
    tools: list[dict[str, object]] = [{}]
    assert bar({"n": 1, "temperature": 0.2, "tools": tools, "logprobs": True, "stream": True, "max_tokens": 5}) is None


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", None), (["a"], None), ([1, 2, 3], None), ([[1, 2]], None), (["a", "b"], "prompt"), ([[1], [2]], "prompt")],
)
def test_several_prompts_stay_whole(prompt: object, expected: str | None) -> None:
    """A list of tokens is one prompt, a list of texts is several."""
    assert bar({"prompt": prompt}, COMPLETIONS) == expected


def test_other_apis_stay_whole() -> None:
    """Responses, messages and embeddings have no legs."""
    assert {bar({}, api) for api in ApiDialect if api not in (CHAT, COMPLETIONS)} == {"api"}


@pytest.mark.parametrize("name", ["n", "prompt"])
def test_what_is_nested_too_deeply_to_be_read_stays_whole(name: str) -> None:
    """One engine answers it, as far as it can."""
    assert find_split_bar({name: msgspec.Raw(b"[" * 3000 + b"]" * 3000)}, COMPLETIONS) == name
