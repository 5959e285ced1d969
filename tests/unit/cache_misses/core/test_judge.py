"""One answer's miss judged by what is known of prompts before it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.cache_misses.core.prompts import LONG, chat

from headrace.cache_misses.core.fingerprint import Fingerprint
from headrace.cache_misses.core.judge import Answered, Miss, judge
from headrace.cache_misses.core.store import Seen
from headrace.domain.miss_status import MissCause

BEFORE = chat(LONG, "q", "a")


def judged(prompt: Fingerprint, *, before: Fingerprint = BEFORE, **how: Any) -> Miss | None:
    answered = Answered(
        prompt=prompt, input_tokens=prompt.length_bytes // 4, cached_tokens=0, endpoint="p/0", version="v", outages=0,
        is_first_there=False, endpoint_has_hits=True,
    )  # fmt: skip
    seen = Seen(
        scope=("m", "t"), family=1, prompt=before, endpoint="p/0", version="v", outages=0, ended_mono_s=0.0,
        cache_losses=how.pop("losses_before", None),
    )  # fmt: skip
    return judge(replace(answered, **how), [seen])


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({}, MissCause.EVICTED),
        ({"outages": 1}, MissCause.ENGINE_RESTARTED),
        ({"endpoint_has_hits": False}, MissCause.NO_CACHE),
        ({"endpoint": "p/1"}, MissCause.OTHER_ENDPOINT),
        ({"version": "w"}, MissCause.MODEL_VERSION),
    ],
)
def test_a_prompt_that_was_there_and_was_not_found(how: dict[str, Any], cause: MissCause) -> None:
    """Where the prompts do not differ, where and by what they were answered tells."""
    miss = judged(chat(LONG, "q", "a", "more"), **how)
    assert miss is not None
    assert (miss.cause, miss.difference) == (cause, None)
    assert miss.tokens_lost > 100


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"losses_before": 3, "cache_losses": 8}, MissCause.EVICTED),
        ({"losses_before": 3, "cache_losses": 8, "endpoint_has_hits": False}, MissCause.EVICTED),
        ({"losses_before": 3, "cache_losses": 3, "endpoint_has_hits": False}, MissCause.NO_CACHE),
        ({"losses_before": 3, "cache_losses": 3}, None),
        ({"losses_before": None, "cache_losses": 3}, MissCause.EVICTED),
        ({"losses_before": 3, "cache_losses": 8, "outages": 1}, MissCause.ENGINE_RESTARTED),
    ],
)
def test_an_engine_that_tells_what_it_lost_is_believed(how: dict[str, Any], cause: MissCause | None) -> None:
    """With its events, eviction is known and not guessed: without a loss since then, nothing is called evicted."""
    miss = judged(chat(LONG, "q", "a", "more"), **how)
    assert (None if miss is None else miss.cause) == cause


@pytest.mark.parametrize(
    "how", [{"cached_tokens": 190}, {"endpoint": "p/1", "is_first_there": True}, {"input_tokens": 60}]
)
def test_no_miss(how: dict[str, Any]) -> None:
    """What was found, what an endpoint never had, and what is too short to matter are no misses."""
    assert judged(chat(LONG, "q", "a", "more"), **how) is None


def test_different_prompts_are_no_miss() -> None:
    """A prompt that has nothing in common with another has not missed its cache."""
    assert judged(chat("Something else entirely, " * 30, "q")) is None
    assert judge(Answered(prompt=BEFORE, input_tokens=9, cached_tokens=0, endpoint="", version="", outages=0,
        is_first_there=True, endpoint_has_hits=True), []) is None  # fmt: skip
