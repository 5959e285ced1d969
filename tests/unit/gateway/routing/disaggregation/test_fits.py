"""Which prefill and decode engines go together, and what is told of those that do not."""

from collections.abc import Iterable, MutableMapping
from typing import Any

import msgspec
from structlog.testing import capture_logs
from tests.harness.handover_parts import HandoverParts, asked, half

from headrace.domain.endpoint import EngineKind
from headrace.domain.routing_status import RouteExplanation
from headrace.engines.kv_shape import KvShape
from headrace.engines.pairs import MOST_NAMED
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.disaggregation.fits import MOST_KINDS

OLD, NEW = "0.33.0", "0.34.0"
WHY = "version is 0.33.0 at prefill and 0.34.0 at decode"
GAIN_S = -30.0
"""Of pools that split also where it costs some time."""


def known(engine: str = "vllm", *, decodes: int = 2, **pool: Any) -> HandoverParts:
    """`p`, and decode engines that have a pool each: their speed is known, and they are connected."""
    pools = {"p": half(engine, "prefill", "http://127.0.0.1:9", min_gain_s=GAIN_S)}
    urls = [f"http://127.0.0.1:{10 + one}" for one in range(decodes)]
    parts = HandoverParts(pools | {f"d{one}": half(engine, "decode", url, pool=pool) for one, url in enumerate(urls)})
    parts.learn_speed(*pools, *(f"d{one}" for one in range(decodes)))
    parts.connect()
    return parts


def tell(endpoint: Endpoint, version: str | None, **members: Any) -> None:
    """As the engine's own word would come."""
    endpoint.told_shape = KvShape(engine=EngineKind(endpoint.plan.engine), version=version, **members)


def review(parts: HandoverParts) -> list[MutableMapping[str, Any]]:
    with capture_logs() as lines:
        parts.handovers.sweep(parts.directory)
    return lines


def taken(parts: HandoverParts, whole: str) -> str | None:
    pair = parts.handovers.split(asked(), parts[whole], parts.halves)
    return None if pair is None else pair.decode.plan.name


def explained(parts: HandoverParts) -> RouteExplanation:
    found = RouteExplanation(
        worker_pid=1, model="m", request_class="", tenant="", input_tokens=1, blocks=0, output_tokens=None,
        picked=None, reason="", candidates=(),
    )  # fmt: skip
    return parts.handovers.explained(found, asked(), parts["d0"], parts.halves)


def levels(lines: Iterable[MutableMapping[str, Any]]) -> list[str]:
    return [str(line["log_level"]) for line in lines]


async def test_an_engine_of_another_version_is_never_paired() -> None:
    """Though it is named first and just as fast; it answers alone, and a line of the log says why."""
    parts = known()
    tell(parts["p"], OLD)
    tell(parts["d0"], NEW)
    tell(parts["d1"], OLD)
    lines = review(parts)
    assert [taken(parts, whole) for whole in ("d0", "d1")] == ["d1", "d1"]
    assert parts.handovers.cold_pairs("m", parts.halves) == []
    assert parts.counts.pairs == {"fits": 1, "kv_layout_mismatch": 1, "not_measured": 0}
    assert (levels(lines), lines[0]["why"], lines[0]["code"]) == (["warning"], WHY, "kv_layout_mismatch")
    assert (lines[0]["prefill"], lines[0]["decode"]) == ("p/127.0.0.1:9", "d0/127.0.0.1:10")
    split = explained(parts).split
    assert split is not None
    assert [(one.why, one.decodes) for one in split.mismatches] == [(WHY, ("d0/127.0.0.1:10",))]
    assert (split.prefill_version, split.decode_version) == (OLD, OLD)


async def test_what_is_not_measured_is_allowed_and_said() -> None:
    """Engines that do not tell what they are go on handing over, and are counted apart."""
    parts = known()
    tell(parts["p"], OLD)
    tell(parts["d1"], None)
    assert review(parts) == []
    assert taken(parts, "d0") == "d0"
    assert parts.counts.pairs == {"fits": 0, "kv_layout_mismatch": 0, "not_measured": 2}
    split = explained(parts).split
    assert split is not None
    assert (split.prefill_version, split.decode_version, split.mismatches) == (OLD, None, ())


async def test_where_nothing_fits_requests_run_whole_and_it_is_said_loudly() -> None:
    """Counted by its reason; once the engines are alike, hand-overs begin again. Nothing is told twice."""
    parts = known()
    tell(parts["p"], OLD)
    for name in ("d0", "d1"):
        tell(parts[name], NEW)
    assert levels(review(parts)) == ["warning", "error"]
    assert review(parts) == []
    assert taken(parts, "d0") is None
    assert parts.counts.decisions == {"kv_layout_mismatch": 1}
    assert msgspec.to_builtins(explained(parts))["split"]["reason"] == "kv_layout_mismatch"
    assert parts.handovers.fits.models["m"].is_hopeless
    tell(parts["p"], NEW)
    assert levels(review(parts)) == ["info"]
    assert taken(parts, "d0") == "d0"
    assert parts.counts.pairs == {"fits": 2, "kv_layout_mismatch": 0, "not_measured": 0}


async def test_an_engine_that_is_away_is_no_pair() -> None:
    """Only usable engines are counted and told of."""
    parts = known()
    tell(parts["p"], OLD)
    tell(parts["d0"], NEW)
    tell(parts["d1"], OLD)
    parts["d0"].probe_said_not_ready("gone")
    assert review(parts) == []
    assert parts.counts.pairs == {"fits": 1, "kv_layout_mismatch": 0, "not_measured": 0}


async def test_engines_that_are_declared_unlike_and_say_that_they_are_alike_fit() -> None:
    """SGLang tells its sizes: what runs counts, not what somebody wrote."""
    parts = known("sglang", parallel={"pipeline": 2}, decodes=1)
    assert parts.handovers.fits.why_apart(parts["p"], parts["d0"]) == "pipeline is 1 at prefill and 2 at decode"
    for name in ("p", "d0"):
        tell(parts[name], "0.5.23", pipeline=1)
    assert parts.handovers.fits.why_apart(parts["p"], parts["d0"]) is None
    tell(parts["d0"], "0.5.23", pipeline=1, block_tokens=64)
    tell(parts["p"], "0.5.23", pipeline=1, block_tokens=1)
    assert parts.handovers.fits.why_apart(parts["p"], parts["d0"]) == "block_tokens is 1 at prefill and 64 at decode"


async def test_many_engines_of_one_mismatch_are_one_line() -> None:
    """Some are named, the others counted."""
    count = MOST_NAMED + 3
    parts = known(decodes=count)
    tell(parts["p"], OLD)
    for one in range(count):
        tell(parts[f"d{one}"], NEW)
    lines = review(parts)
    assert levels(lines) == ["warning", "error"]
    assert str(lines[0]["decode"]).endswith("d4/127.0.0.1:14, and 3 more")
    assert parts.counts.pairs["kv_layout_mismatch"] == count


async def test_an_engine_that_says_something_else_each_time_is_not_remembered_for_ever() -> None:
    """What was judged before is forgotten at a bound, and judged again."""
    parts = known(decodes=1)
    tell(parts["p"], OLD)
    for number in range(3 * MOST_KINDS):
        tell(parts["d0"], f"0.{number}")
        why = parts.handovers.fits.why_apart(parts["p"], parts["d0"])
        assert (why is None) is (f"0.{number}" == OLD)
    tell(parts["d0"], OLD)
    assert parts.handovers.fits.why_apart(parts["p"], parts["d0"]) is None
