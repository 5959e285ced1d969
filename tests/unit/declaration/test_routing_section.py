"""`models.<name>.routing` and `pools.<name>.accepts`."""

import pytest
from pydantic import ValidationError

from headrace.declaration.routing_section import Accepts, Routing


def test_the_default_policy_predicts() -> None:
    """Without a word in the file, requests go where they are predicted to be answered soonest."""
    assert [scorer.kind for scorer in Routing().scorers] == ["predicted-ttft", "prefill-work", "decode-slowdown"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"scorers": [{"kind": "least-loaded"}, {"kind": "least-loaded"}]}, "given twice"),
        ({"scorers": [{"kind": "luck"}]}, "luck|Input should be"),
        ({"scorers": []}, "at least 1"),
        ({"split": {"a": 0, "b": 0}}, "weight 0"),
        ({"split": {"a": -1}}, "0 or more"),
        ({"brake_factor": 1}, "greater than 1"),
    ],
)
def test_what_cannot_work_is_refused(section: dict[str, object], said: str) -> None:
    """A policy that contradicts itself is refused, with the reason."""
    with pytest.raises(ValidationError, match=said):
        Routing.model_validate(section)


def test_lengths_that_no_prompt_has_are_refused() -> None:
    """A pool whose shortest prompt is longer than its longest would never be used."""
    with pytest.raises(ValidationError, match="no prompt would do"):
        Accepts(min_input_tokens=10, max_input_tokens=9)
