"""What `headrace route advise` prints."""

import pytest
from rich.console import Console
from tests.unit.domain.test_split_advice import PAIR, WHOLE, advice, counted, pace

from headrace.cli.route_advice import REASONS, advice_view, only_of
from headrace.domain.operator_error import OperatorError, UnknownNameError
from headrace.domain.split_advice import ModelAdvice, SplitAdvice
from headrace.domain.split_status import LoadTotals
from headrace.gateway.routing.disaggregation.core.splitting import SplitReason


def shown(*models: ModelAdvice, width: int = 200) -> str:
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(advice_view(SplitAdvice(workers=1, models=models)))
    return capture.get()


def value_of(text: str, name: str) -> str:
    """The cell beside a figure's name."""
    return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).strip()


def test_figures_verdict_and_changes_are_shown() -> None:
    """One look tells the load, whether it pays, both ratios and what to do."""
    text = shown(advice(pace("prefill", 3), pace("decode", 3), prefill=5_000.0, output=2_500.0))
    assert text.startswith("m (prefill, decode): 100 requests in the last 100 s\nsplitting pays: yes; 50 of 100")
    assert value_of(text, "predicted gain of a split one s") == "0.5"
    assert value_of(text, "transfer MB per s") == "200"
    assert value_of(text, "prefill:decode engines now") == "3:3 (busier side 83.3% busy)"
    assert value_of(text, "prefill:decode engines wanted") == "1:5 (busier side 50.0% busy)"
    assert value_of(text, "split ").split() == ["50", "50%"]
    assert "what to change:\n  - 1 prefill and 5 decode engines instead of 3 and 3" in text


def test_what_was_not_measured_is_said_so() -> None:
    """No figure stands for one that nobody has taken."""
    totals = counted(handed_bytes=0.0, stages={"transfer": 2}, stage_s={}, split_gains=0)
    text = shown(advice(pace("prefill", prefill_tokens_per_s=None), pace("decode", at_sequences=None), totals=totals))
    assert value_of(text, "transfer MB per s") == "not measured"
    assert value_of(text, "its prefill s") == "not measured"
    assert value_of(text, "its transfer s") == "0"
    assert value_of(text, "prefill:decode engines now") == "not measured"
    assert "splitting pays: not measured; every request is split" in text
    assert "nothing that these figures ask for" in text


def test_fallbacks_have_their_reasons() -> None:
    """The most frequent comes first."""
    ended = {"completed": 40, "fell-back": 10}
    text = shown(advice(*PAIR, totals=counted(ended=ended, fallbacks={"prefill_late": 2, "transfer_failed": 8})))
    assert value_of(text, "hand-overs that fell back").startswith("20%")
    assert text.index("transfer_failed ") < text.index("prefill_late ")


def test_pools_without_roles_show_what_prompts_cost_others() -> None:
    """And nothing of hand-overs, of which there were none."""
    text = shown(advice(pace("both"), totals=counted(**WHOLE)))
    assert value_of(text, "others' waiting for one prompt s") == "2"
    assert "predicted gain" not in text
    assert "how long handing a prompt over takes" in text


def test_without_traffic_there_are_no_tables() -> None:
    """A line says so."""
    text = shown(advice(*PAIR, totals=LoadTotals()))
    assert "nothing measured yet" in text
    assert len(text.splitlines()) == 2
    assert shown().strip() == "no model with pools that generate is declared"


def test_a_pool_stands_for_its_model() -> None:
    """Either half shows the whole; a name that there is nothing of comes with the nearest."""
    found = SplitAdvice(workers=1, models=(advice(*PAIR), advice(pace("both"), totals=counted(**WHOLE))))
    assert only_of("decode", found).models == only_of("prefill", found).models == found.models[:1]
    assert only_of(None, found) is found
    with pytest.raises(UnknownNameError, match='"decoder"') as failure:
        only_of("decoder", found)
    assert failure.value.hint == 'Did you mean "decode"?'


def test_without_a_worker_that_answers_nothing_is_made_up() -> None:
    """Neither that no model is declared, nor that the pool does not exist."""
    with pytest.raises(OperatorError, match="no gateway worker answered"):
        only_of("decode", SplitAdvice(workers=0, models=()))


def test_every_reason_has_its_words() -> None:
    """Operators read words, not labels."""
    assert set(REASONS) == {reason.value for reason in SplitReason}
