"""Prefill and decode engines that go together, as a person reads it."""

from headrace.cli.handover_view import fit_lines, hopeless_texts
from headrace.domain.routing_status import HandoverFit, PairMismatch

MISMATCH = PairMismatch(
    why="version is 0.33.0 at prefill and 0.34.0 at decode", prefills=("p/0",), decodes=("d/0", "d/1"), pairs=2
)


def test_pairs_that_fit_are_counted_in_one_line() -> None:
    """Nothing else is said of them; what is not measured is said so."""
    lines = list(fit_lines([HandoverFit(model="m", fits=3, unfit=0, not_measured=1)]))
    assert lines == ["hand-overs   m: of its pairs 3 fit, 0 do not (kv_layout_mismatch), 1 not measured"]
    assert not list(hopeless_texts([HandoverFit(model="m", fits=0, unfit=0, not_measured=0)]))


def test_engines_that_are_kept_apart_are_named_with_both_values() -> None:
    """And where nothing is left that fits, that comes first."""
    some = list(fit_lines([HandoverFit(model="m", fits=1, unfit=2, not_measured=0, mismatches=(MISMATCH,))]))
    told = "not paired: p/0 with d/0, d/1: kv_layout_mismatch, version is 0.33.0 at prefill and 0.34.0 at decode"
    assert [line.strip() for line in some[1:]] == [told]
    none = list(fit_lines([HandoverFit(model="m", fits=0, unfit=2, not_measured=0, mismatches=(MISMATCH,))]))
    assert none[1].strip().startswith("NOTHING IS HANDED OVER: no prefill engine of m fits a decode engine")
    assert none[2].strip() == told
