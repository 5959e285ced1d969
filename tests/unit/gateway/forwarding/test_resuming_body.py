"""The body of an attempt that goes on with what the caller has."""

from typing import Any

import msgspec
import pytest

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.engines.continuation import ContinuationRow
from headrace.engines.llamacpp.continuation import CONTINUATION as LLAMACPP
from headrace.engines.vllm.continuation import CONTINUATION as VLLM
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.resuming_body import CannotResumeError, output_left, resuming_body, seam_for

USER = {"role": "user", "content": "hi"}


def had(text: str, tokens: int = 3) -> Had:
    return Had(text=text, tokens=tokens, first_event=b"")


def request(dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS, limit: int | None = None, **fields: Any):
    body = msgspec.json.encode({"model": "m", **fields})
    return InferenceRequest(
        dialect=dialect,
        path=b"/",
        requested_model="m",
        body=body,
        fields=msgspec.json.decode(body, type=dict[str, msgspec.Raw]),
        is_stream=True,
        wants_usage=False,
        output_limit_tokens=limit,
    )


def body_of(asked: InferenceRequest, text: str, row: ContinuationRow) -> dict[str, Any]:
    return msgspec.json.decode(resuming_body(asked.body, asked, had(text), row))


def test_an_answer_becomes_a_last_message_and_its_limit_shrinks() -> None:
    """With the flags of the engine's row; every name of the limit that the caller used is corrected."""
    asked = request(messages=[USER], max_tokens=10, max_completion_tokens=10, limit=10)
    body = body_of(asked, "Once", VLLM)
    assert body["messages"] == [USER, {"role": "assistant", "content": "Once"}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["max_tokens"], body["max_completion_tokens"]) == (7, 7)
    assert output_left(asked, had("Once"), VLLM) == 7
    assert "max_tokens" not in body_of(request(messages=[USER]), "Once", VLLM)


def test_a_message_that_the_caller_began_is_gone_on_with() -> None:
    """Its words and ours are one message."""
    begun = [USER, {"role": "assistant", "content": "On"}]
    asked = request(messages=begun, continue_final_message=True)
    assert body_of(asked, "ce", VLLM)["messages"][-1]["content"] == "Once"
    assert body_of(request(messages=begun), "ce", LLAMACPP)["messages"][-1]["content"] == "Once"


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [USER, {"role": "assistant", "content": "a turn of its own"}]},
        {
            "messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "a"}]}],
            "continue_final_message": True,
        },
        {"messages": []},
        {"messages": "hi"},
    ],
)
def test_messages_that_cannot_be_gone_on_with_bar(fields: dict[str, Any]) -> None:
    """A turn that the engine does not continue, or none."""
    with pytest.raises(CannotResumeError) as caught:
        body_of(request(**fields), "x", VLLM)
    assert caught.value.bar is ResumeBar.MESSAGES


def test_a_prompt_is_gone_on_with_as_text_or_as_tokens() -> None:
    """Without a limit of the caller's the engine's own counts, for both parts together."""
    asked = request(ApiDialect.COMPLETIONS, prompt="Tell: ")
    assert body_of(asked, "Once", VLLM) == {"model": "m", "prompt": "Tell: Once", "max_tokens": 13}
    assert "max_tokens" not in body_of(asked, "Once", LLAMACPP)
    assert body_of(request(ApiDialect.COMPLETIONS, prompt=["Tell: "]), "Once", LLAMACPP)["prompt"] == "Tell: Once"
    ids = request(ApiDialect.COMPLETIONS, prompt=[1, 2, 3])
    told = Had(text="Once", tokens=2, first_event=b"", token_ids=(8, 9))
    assert msgspec.json.decode(resuming_body(ids.body, ids, told, LLAMACPP))["prompt"] == [1, 2, 3, 8, 9]
    for prompt in ([1, 2, 3], ["a", "b"]):
        with pytest.raises(CannotResumeError):
            body_of(request(ApiDialect.COMPLETIONS, prompt=prompt), "Once", VLLM)


def test_white_space_that_templates_trim_is_left_to_the_engine() -> None:
    """Not sent, and expected again; llama.cpp is proved to keep it."""
    asked = request(messages=[USER], max_tokens=10, limit=10)
    body = body_of(asked, "Once.\n\n", VLLM)
    assert body["messages"][-1]["content"] == "Once."
    assert seam_for(asked, had("Once.\n\n"), VLLM).take("\n\nThen") == "Then"
    assert body_of(asked, "Once.\n\n", LLAMACPP)["messages"][-1]["content"] == "Once.\n\n"
    assert seam_for(asked, had("Once.\n\n"), LLAMACPP).take("\n\nThen") == "\n\nThen"


def test_without_a_word_the_request_is_made_again() -> None:
    """Where only the role had come, nothing is continued."""
    asked = request(messages=[USER], max_tokens=10, limit=10)
    assert msgspec.json.decode(resuming_body(asked.body, asked, had("", tokens=0), VLLM)) == {
        "model": "m", "messages": [USER], "max_tokens": 10,
    }  # fmt: skip
