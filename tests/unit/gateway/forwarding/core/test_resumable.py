"""Which requests' streams may go on elsewhere, by their fields."""

from typing import Any

import msgspec
import pytest

from headrace.gateway.forwarding.core.bars import BAR_TEXT, ResumeBar
from headrace.gateway.forwarding.core.resumable import find_bar, may_be_resumable


def bar_of(*, allows_seeded: bool = False, **fields: Any) -> ResumeBar | None:
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}
    return find_bar(raw, allows_seeded=allows_seeded)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m", "messages": [], "max_tokens": 3, "stop": ["a"], "temperature": 0.7, "top_p": 0.9, "user": "u"},
        {"n": 1, "logprobs": False, "tools": [], "presence_penalty": 0.0, "repetition_penalty": 1.0},
        {"response_format": {"type": "text"}, "stream_options": {"include_usage": True}, "tool_choice": "auto"},
        {"a_field_of_tomorrow": None, "chat_template_kwargs": {"language": "fr"}},
    ],
)
def test_plain_requests_are_not_barred(fields: dict[str, Any]) -> None:
    """What survives, and what says what holds without it, does not matter."""
    assert bar_of(**fields) is None


@pytest.mark.parametrize(
    ("fields", "bar"),
    [
        ({"n": 2}, ResumeBar.CHOICES),
        ({"logprobs": 0}, ResumeBar.LOGPROBS),  # of completions: the chosen token's
        ({"frequency_penalty": 0.1}, ResumeBar.PENALTIES),
        ({"mirostat": 2}, ResumeBar.PENALTIES),
        ({"stream_options": {"include_usage": True, "continuous_usage_stats": True}}, ResumeBar.FIELD),
        ({"chat_template_kwargs": {"enable_thinking": False}}, ResumeBar.REASONING),
        ({"guided_regex": "a+"}, ResumeBar.STRUCTURED),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, ResumeBar.STRUCTURED),
        ({"a_field_of_tomorrow": 0}, ResumeBar.FIELD),
    ],
)
def test_what_is_not_known_to_survive_bars(fields: dict[str, Any], bar: ResumeBar) -> None:
    """Each with its own reason."""
    assert bar_of(**fields) is bar


def test_a_seed_bars_sampling_alone() -> None:
    """A greedy answer does not depend on it; sampling may be allowed by the operator."""
    assert bar_of(seed=1, temperature=0) is None
    assert bar_of(seed=1) is ResumeBar.SEED
    assert bar_of(seed=1, temperature=0.5) is ResumeBar.SEED
    assert bar_of(seed=1, temperature=0.5, allows_seeded=True) is None


def test_the_first_look_goes_by_names() -> None:
    """Text is kept unless a name says that it would be in vain."""
    null = msgspec.Raw(b"null")
    assert may_be_resumable({"messages": null, "seed": null, "response_format": null})
    assert not may_be_resumable({"messages": null, "tools": null})
    assert not may_be_resumable({"a_field_of_tomorrow": null})


def test_every_bar_has_a_sentence() -> None:
    """A caller is told why its stream was not resumed."""
    assert set(BAR_TEXT) == set(ResumeBar)


def test_what_is_nested_too_deeply_to_be_read_bars() -> None:
    """It is not known to survive either."""
    assert find_bar({"seed": msgspec.Raw(b"[" * 3000 + b"]" * 3000)}, allows_seeded=True) is ResumeBar.FIELD


def test_a_temperature_that_cannot_be_read_is_not_greedy() -> None:
    """A number out of range beside a seed bars the resume, and is no bug of ours."""
    fields = {"seed": msgspec.Raw(b"1"), "temperature": msgspec.Raw(b"1e400")}
    assert find_bar(fields, allows_seeded=False) is ResumeBar.SEED
