"""Prefill and decode engines that go together, and those that do not, for a person."""

from collections.abc import Iterable, Iterator

from headrace.domain.routing_status import HandoverFit, PairMismatch


def mismatch_lines(mismatches: Iterable[PairMismatch]) -> list[str]:
    """Engines that are kept apart, a line for each reason."""
    return [
        f"not paired: {', '.join(each.prefills)} with {', '.join(each.decodes)}: kv_layout_mismatch, {each.why}"
        for each in mismatches
    ]


def fit_lines(fits: Iterable[HandoverFit]) -> Iterator[str]:
    """Pairs of each model that hands over, and what is wrong with them."""
    for fit in fits:
        counts = f"{fit.fits} fit, {fit.unfit} do not (kv_layout_mismatch), {fit.not_measured} not measured"
        yield f"hand-overs   {fit.model}: of its pairs {counts}"
        yield from (f"             {line}" for line in (*hopeless_texts([fit]), *mismatch_lines(fit.mismatches)))


def hopeless_texts(fits: Iterable[HandoverFit]) -> Iterator[str]:
    """Of models none of whose pairs fits: what that means, and what to do."""
    for fit in fits:
        if fit.is_hopeless:
            yield (
                f"NOTHING IS HANDED OVER: no prefill engine of {fit.model} fits a decode engine; requests run whole "
                "where engines answer alone. Run the same version, number format and parallel sizes on both sides"
            )
