"""What a worker exposes before anything went wrong: troubles begin at 0, or their first would be in no rate."""

import re

from headrace.domain.errors import ERRORS, ErrorCode, Fault, Outcome
from headrace.gateway.accounting.counters import Counters
from headrace.gateway.accounting.exposition import Exposition, WorkerSample
from headrace.gateway.accounting.handover_exposition import HandoverCollector, HandoverCounts
from headrace.gateway.admission.core.lane import QueueBound
from headrace.gateway.forwarding.core.bars import ResumeBar, ResumeCause
from headrace.gateway.handover.core.events import HandoverEnd, HandoverFailure
from headrace.telemetry import catalogue

IDLE = WorkerSample(in_flight=0, connections=0, journal_dropped=0, journal_pending=0, log_dropped=0, endpoints=())


def values(page: str, name: str, model: str, label: str) -> dict[str, float]:
    """A metric's values of one model by another label."""
    found = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", page, re.MULTILINE)
    by_labels = [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]
    return {labels[label]: value for labels, value in by_labels if labels["model"] == model}


def test_a_declared_models_troubles_begin_at_zero() -> None:
    """Failures, failovers, resumes and broken streams; what callers do wrong comes when it comes."""
    counters = Counters()
    counters.adopt(("m",))
    page = Exposition(counters, lambda: IDLE).text()
    codes = values(page, "headrace_requests_total", "m", "code")
    caused = {code for code, row in ERRORS.items() if row.fault not in (Fault.CALLER, Fault.TENANT)}
    assert codes == dict.fromkeys(["", *caused], 0.0)
    assert ErrorCode.RATE_LIMITED not in codes
    assert set(values(page, "headrace_failovers_total", "m", "code")) == {
        code for code, row in ERRORS.items() if row.may_fail_over
    }
    assert values(page, "headrace_resumes_total", "m", "cause") == dict.fromkeys(ResumeCause, 0.0)
    assert values(page, "headrace_unresumed_streams_total", "m", "reason") == dict.fromkeys(ResumeBar, 0.0)
    assert values(page, "headrace_requests_total", "unknown", "code") == {}
    assert values(page, "headrace_resumes_total", "unknown", "cause") == {}


def test_what_happened_is_counted_on_from_there() -> None:
    """Also where its word is none of those known beforehand."""
    counters = Counters()
    counters.adopt(("m",))
    counted = counters.of("m")
    counted.ended = {(Outcome.FAILED.value, "connect_failed"): 2, (Outcome.REJECTED.value, "rate_limited"): 3}
    counted.resumes["died"] = 1
    counted.failovers["context_too_long"] = 4
    page = Exposition(counters, lambda: IDLE).text()
    codes = values(page, "headrace_requests_total", "m", "code")
    assert (codes["connect_failed"], codes["rate_limited"], codes["internal_bug"]) == (2.0, 3.0, 0.0)
    assert values(page, "headrace_resumes_total", "m", "cause") == {"died": 1.0, "stalled": 0.0, "drained": 0.0}
    assert values(page, "headrace_failovers_total", "m", "code")["context_too_long"] == 4.0


def test_the_words_that_begin_at_zero_are_those_that_happen() -> None:
    """A bound, end or failure that is added is in the catalogue too."""
    assert set(catalogue.QUEUE_REFUSALS.from_zero) == {*QueueBound, "expired", "ladder"}
    assert set(catalogue.HANDOVERS.from_zero) == set(HandoverEnd)
    assert set(catalogue.HANDOVER_FALLBACKS.from_zero) == set(HandoverFailure)
    assert set(catalogue.TENANT_REQUESTS.from_zero) == set(Outcome)


def test_hand_overs_begin_at_zero_where_there_are_pools_for_them() -> None:
    """And only there."""
    counted = {family.name: family for family in HandoverCollector(lambda: {"m": HandoverCounts()}).collect()}
    assert {sample.value for sample in counted["headrace_handover_fallbacks"].samples} == {0}
    assert len(counted["headrace_handovers"].samples) == len(HandoverEnd)
    assert not any(family.samples for family in HandoverCollector(dict).collect())
