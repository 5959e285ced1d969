"""The file of measured runs."""

import pytest
import yaml
from pydantic import ValidationError
from tests.unit.simulation.test_fitting import samples

from headrace.simulation.samples import MeasuredRequest, parse_samples


def test_what_was_written_is_read_back() -> None:
    """Measured runs survive their file."""
    assert parse_samples(yaml.safe_dump(samples().model_dump(mode="json"))) == samples()


def test_a_run_without_requests_is_refused() -> None:
    """An empty run would fit nothing and is a mistake of whoever wrote it."""
    written = samples().model_dump(mode="json")
    written["runs"][0]["requests"] = []

    with pytest.raises(ValidationError, match=r"runs\.0\.requests"):
        parse_samples(yaml.safe_dump(written))


def test_ttft_and_tpot_of_a_measured_request() -> None:
    """The first token counts from the sending, the gaps from the first token; one token has no gap."""
    request = MeasuredRequest(sent_at_s=1.0, input_tokens=8, output_tokens=5, first_token_at_s=1.5, ended_at_s=2.5)

    assert request.ttft_s == 0.5
    assert request.tpot_s == 0.25
    assert request.model_copy(update={"output_tokens": 1}).tpot_s is None
