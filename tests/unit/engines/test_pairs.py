"""All pairs of a model's prefill and decode engines, judged together."""

from headrace.domain.endpoint import EngineKind
from headrace.engines.kv_shape import KnownShape, KvShape
from headrace.engines.pairs import MOST_MISMATCHES, MOST_NAMED, fit_of


def known(version: str | None, engine: EngineKind = EngineKind.VLLM, **members: int) -> KnownShape:
    """An engine that has said no more than its version, and `members`."""
    told = KvShape(engine=engine, version=version, **members)
    return KnownShape(declared=KvShape(engine=engine, model="m"), told=told)


def test_pairs_are_counted_by_what_is_known_of_them() -> None:
    """Alike, unlike, and not measured; what is unlike is named once for all engines of it."""
    found = fit_of("m", {"p": known("1")}, {"a": known("1"), "b": known("2"), "c": known("2"), "d": known(None)})
    assert (found.fits, found.unfit, found.not_measured, found.is_hopeless) == (1, 2, 1, False)
    (told,) = found.mismatches
    assert (told.prefills, told.decodes, told.pairs) == (("p",), ("b", "c"), 2)
    assert told.why == "version is 1 at prefill and 2 at decode"


def test_an_engine_is_no_pair_with_itself() -> None:
    """Three engines that do both are six pairs; one alone is none, and nothing is wrong with it."""
    both = {name: known("1") for name in "abc"}
    assert fit_of("m", both, both).fits == 6
    one = {"a": known("1")}
    assert fit_of("m", one, one).fits == 0
    assert not fit_of("m", one, one).is_hopeless
    assert fit_of("m", {}, {}).mismatches == ()


def test_engines_of_several_kinds_are_judged_by_their_own_rules() -> None:
    """vLLM maps blocks of other sizes, SGLang refuses them, and neither takes the other's KV."""
    kinds = {"v": EngineKind.VLLM, "s": EngineKind.SGLANG}
    prefills = {f"p{name}": known("1", kind, block_tokens=16) for name, kind in kinds.items()}
    decodes = {f"d{name}": known("1", kind, block_tokens=32) for name, kind in kinds.items()}
    found = fit_of("m", prefills, decodes)
    assert (found.fits, found.unfit) == (1, 3)
    assert [(one.prefills, one.decodes) for one in found.mismatches] == [
        (("pv",), ("ds",)),
        (("ps",), ("dv",)),
        (("ps",), ("ds",)),
    ]


def test_what_is_told_is_bounded() -> None:
    """Many engines of one mismatch, and many mismatches."""
    found = fit_of("m", {"p": known("1")}, {f"d{one}": known("2") for one in range(MOST_NAMED + 2)})
    assert found.mismatches[0].decodes[-1] == "and 2 more"
    found = fit_of("m", {"p": known("1")}, {f"d{one}": known(f"2.{one}") for one in range(2 * MOST_MISMATCHES)})
    assert (len(found.mismatches), found.unfit) == (MOST_MISMATCHES, 2 * MOST_MISMATCHES)
