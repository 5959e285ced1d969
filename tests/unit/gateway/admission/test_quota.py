"""The quota of one worker: what is reserved, what is settled, and what a bill says."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.quota import Level, LimitId, LimitSet, Spent, Unit
from headrace.domain.request import ApiDialect, InferenceRequest, RequestClass
from headrace.domain.tenant import Caller
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.gateway.admission.core.meter import MeterFactory
from headrace.gateway.admission.core.output_lengths import START_TOKENS
from headrace.gateway.admission.quota import NO_BILL, Quota, Ticket

NOW_S = 1000.0
CALLER = Caller(tenant=TenantId("t"), key_id=KeyId("k"), models=None)
PRICES = {"version": "v", "models": {"m": {"input_per_million": 1, "output_per_million": 2, "gpu_hour": 3.6}}}
POOL = {"model": "m", "engine": "openai", "endpoints": ["http://127.0.0.1:1"]}
RATES = {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100}
COUNTED = TokenUsage(input_tokens=100, output_tokens=20, cached_input_tokens=40)


def quota_of(pool: dict[str, Any] | None = None, **sections: Any) -> Quota:
    quota = Quota(LocalMeters(WallOffset(1_000_000.0, 0.0)))
    adopt(quota, pool, **sections)
    return quota


def adopt(quota: Quota, pool: dict[str, Any] | None = None, **sections: Any) -> None:
    tenants = {"t": sections.pop("tenant", {})}
    declaration = Declaration.model_validate(
        {"models": {"m": {}}, "pools": {"p": {**POOL, **(pool or {})}}, "tenants": tenants, **sections}
    )
    quota.adopt(compile_gateway_plan(declaration, {}, revision=1), (), NOW_S)


def request_of(*, limit: int | None = 50, **more: Any) -> InferenceRequest:
    body = msgspec.json.encode({"model": "m", **more.pop("fields", {})})
    return InferenceRequest(
        dialect=more.pop("dialect", ApiDialect.CHAT_COMPLETIONS),
        path=b"/v1/chat/completions",
        requested_model="m",
        body=body,
        fields=msgspec.json.decode(body, type=dict[str, msgspec.Raw]),
        is_stream=False,
        wants_usage=False,
        output_limit_tokens=limit,
        estimated_input_tokens=120,
        **more,
    )


def reserve(quota: Quota, request: InferenceRequest | None = None) -> Ticket:
    ticket = quota.reserve(CALLER, request or request_of(), NOW_S)
    assert ticket is not None
    return ticket


def settle(
    quota: Quota, ticket: Ticket, usage: TokenUsage = COUNTED, code: ErrorCode | None = None, **more: Any
) -> Any:
    given = {"output_events": 0, "pool": "p", "is_dispatched": True, "now_mono_s": NOW_S, **more}
    return quota.settle(ticket, usage=usage, code=code, **given)


def used(quota: Quota, unit: Unit) -> int:
    (meter,) = [meter for meter in quota.iter_meters((), NOW_S) if meter.limit_id == LimitId(Level.TENANT, "t", unit)]
    return meter.used(NOW_S)


LIMITED = {"limits": {"requests_per_min": 10, "input_tokens_per_min": 1000, "output_tokens_per_min": 5000}}


def test_input_is_reserved_as_estimated_and_output_as_allowed() -> None:
    """Before dispatch; for several answers, several times the output."""
    quota = quota_of(tenant=LIMITED)
    reserve(quota)
    reserve(quota, request_of(fields={"n": 3}))
    assert (used(quota, Unit.INPUT_TOKENS_PER_MIN), used(quota, Unit.OUTPUT_TOKENS_PER_MIN)) == (240, 50 + 150)


@pytest.mark.parametrize(("limit", "expected"), [(5000, START_TOKENS), (300, 300), (1, 1)])
def test_an_answer_without_a_limit_is_reserved_as_expected(limit: int, expected: int) -> None:
    """Never more than the limit itself, so that a small one serves such requests too, one at a time."""
    quota = quota_of(tenant={"limits": {"output_tokens_per_min": limit}})
    reserve(quota, request_of(limit=None))
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == expected


def test_expectations_are_learned_from_answers_without_a_limit() -> None:
    """Those that were cut short by one say nothing of how long answers would be."""
    quota = quota_of(tenant={"limits": {"output_tokens_per_min": 50_000}})
    for _ in range(30):
        settle(quota, reserve(quota, request_of(limit=20)))
    assert reserve(quota, request_of(limit=None)).reservation.expected_output_tokens == START_TOKENS
    for _ in range(30):
        settle(quota, reserve(quota, request_of(limit=None)))
    assert 20 <= reserve(quota, request_of(limit=None)).reservation.expected_output_tokens <= 25


def test_embeddings_have_no_output() -> None:
    """Nothing is reserved for it."""
    quota = quota_of(tenant=LIMITED)
    reserve(quota, request_of(limit=None, dialect=ApiDialect.EMBEDDINGS))
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == 0


ENDS = [
    # how it ended, what the engine said, events received, dispatched -> requests, input, output charged
    (None, COUNTED, 0, True, (1, 100, 20)),
    (None, UNKNOWN_USAGE, 7, True, (1, 120, 7)),
    (ErrorCode.CALLER_DISCONNECTED, UNKNOWN_USAGE, 7, True, (1, 120, 7)),
    (ErrorCode.CALLER_DISCONNECTED, UNKNOWN_USAGE, 0, True, (1, 120, 0)),
    (ErrorCode.CALLER_DISCONNECTED, UNKNOWN_USAGE, 0, False, (0, 0, 0)),
    (ErrorCode.DEADLINE_EXCEEDED, UNKNOWN_USAGE, 3, True, (1, 120, 3)),
    (ErrorCode.STREAM_BROKEN, UNKNOWN_USAGE, 9, True, (1, 120, 9)),
    (ErrorCode.STREAM_BROKEN, UNKNOWN_USAGE, 0, True, (0, 0, 0)),
    (ErrorCode.CONNECT_FAILED, UNKNOWN_USAGE, 0, True, (0, 0, 0)),
    (ErrorCode.CONTEXT_TOO_LONG, UNKNOWN_USAGE, 0, True, (0, 0, 0)),
    (ErrorCode.NO_READY_ENDPOINT, UNKNOWN_USAGE, 0, False, (0, 0, 0)),
    (ErrorCode.INTERNAL_BUG, UNKNOWN_USAGE, 0, False, (0, 0, 0)),
]


@pytest.mark.parametrize(("code", "usage", "events", "is_dispatched", "charged"), ENDS)
def test_every_end_is_settled(
    code: ErrorCode | None, usage: TokenUsage, events: int, is_dispatched: bool, charged: tuple[int, int, int]
) -> None:
    """As the engine counted; where it did not, what was received; and nothing where nothing was done."""
    quota = quota_of(tenant=LIMITED)
    settle(quota, reserve(quota), usage, code, output_events=events, is_dispatched=is_dispatched)
    units = (Unit.REQUESTS_PER_MIN, Unit.INPUT_TOKENS_PER_MIN, Unit.OUTPUT_TOKENS_PER_MIN)
    assert (tuple(used(quota, unit) for unit in units), quota.in_flight) == (charged, 0)


def test_a_bill_has_gpu_time_cost_and_the_version_of_the_prices() -> None:
    """Cached input takes no time of a GPU; what is not declared is not known."""
    priced = quota_of({"rates": RATES, "parallel": {"tensor": 2}}, prices=PRICES)
    bill = settle(priced, reserve(priced))
    gpu_s = 2 * (60 / 1000 + 20 / 100)
    assert (bill.gpu_s, bill.price_version) == (pytest.approx(gpu_s), "v")
    assert bill.cost_nanos == 100 * 1000 + 20 * 2000 + round(gpu_s * 1_000_000)
    free = quota_of()
    assert settle(free, reserve(free)) == NO_BILL
    timed = quota_of({"rates": RATES})
    assert settle(timed, reserve(timed)).cost_nanos is None
    assert settle(priced, reserve(priced), UNKNOWN_USAGE, ErrorCode.CONNECT_FAILED) == NO_BILL


def test_gpu_time_and_money_are_reserved_before_they_are_spent() -> None:
    """As if nothing were cached, and the whole output came."""
    tenant = {"limits": {"gpu_seconds_per_min": 100}, "budget": {"per_day": 1, "per_month": 2}}
    quota = quota_of({"rates": RATES}, tenant=tenant, prices=PRICES)
    ticket = reserve(quota)
    gpu_s = 0.12 + 0.5
    cost = 120 * 1000 + 50 * 2000 + round(gpu_s * 1_000_000)
    assert used(quota, Unit.GPU_SECONDS_PER_MIN) == pytest.approx(gpu_s * 1e6)
    assert used(quota, Unit.BUDGET_PER_DAY) == used(quota, Unit.BUDGET_PER_MONTH) == cost
    bill = settle(quota, ticket)
    assert used(quota, Unit.BUDGET_PER_DAY) == bill.cost_nanos < cost
    assert used(quota, Unit.GPU_SECONDS_PER_MIN) == pytest.approx(bill.gpu_s * 1e6)


class Going:
    """An answer under way."""

    output_tokens = 0


def test_an_answer_that_outgrows_its_reservation_is_counted_while_it_streams() -> None:
    """Others see it before it ends; one with a limit of its own was reserved whole."""
    quota = quota_of(tenant={"limits": {"output_tokens_per_min": 10_000}})
    ticket = reserve(quota, request_of(limit=None))
    ticket.answer = going = Going()
    quota.sweep({}, NOW_S)
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == START_TOKENS
    going.output_tokens = 2000
    quota.sweep({}, NOW_S)
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == 3000
    settle(quota, ticket, UNKNOWN_USAGE, output_events=2100)
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == 2100


def test_the_gateway_holds_no_more_than_it_may() -> None:
    """gateway.limits.in_flight, at the limit and one more."""
    quota = quota_of(gateway={"limits": {"in_flight": 2}})
    first, _ = reserve(quota), reserve(quota)
    with pytest.raises(RequestError) as refused:
        reserve(quota)
    assert (refused.value.code, quota.in_flight) == (ErrorCode.SATURATED, 2)
    settle(quota, first)
    reserve(quota)


def test_classes_that_a_caller_may_not_send_are_refused() -> None:
    """By name, with those it may."""
    caller = Caller(tenant=TenantId("t"), key_id=KeyId("k"), models=None, classes=frozenset({RequestClass.OFFLINE}))
    with pytest.raises(RequestError, match="may not send requests of class standard; it may send: offline"):
        quota_of().fit(caller, request_of(), NOW_S)


def test_a_cap_becomes_the_limit_of_requests_without_one() -> None:
    """The engine is told it; a limit that the caller gave stays."""
    quota = quota_of(tenant={"limits": {"per_request": {"output_tokens": 60}}})
    fitted = quota.fit(CALLER, request_of(limit=None), NOW_S)
    assert (fitted.output_limit_tokens, fitted.body) == (60, b'{"max_tokens":60,"model":"m"}')
    given = request_of(limit=59)
    assert quota.fit(CALLER, given, NOW_S) is given


def test_a_key_that_changes_gets_its_new_limits() -> None:
    """What is kept ready for a key is not older than the key."""
    quota = quota_of()
    limited = msgspec.structs.replace(CALLER, limits=LimitSet(amounts={Unit.REQUESTS_PER_MIN: 0}))
    assert quota.purse_of(CALLER, NOW_S).meters == ()
    assert len(quota.purse_of(limited, NOW_S).meters) == 1
    with pytest.raises(RequestError):
        quota.reserve(limited, request_of(), NOW_S)
    assert quota.refusals == {("key", "requests_per_min"): 1}


def test_slots_of_a_limit_that_is_taken_away_and_put_back() -> None:
    """What is in work goes on being counted."""
    quota = quota_of(tenant={"limits": {"concurrent_requests": 2}})
    tickets = [reserve(quota), reserve(quota)]
    adopt(quota)
    tickets.append(reserve(quota))
    adopt(quota, tenant={"limits": {"concurrent_requests": 4}})
    assert used(quota, Unit.CONCURRENT_REQUESTS) == 3
    for ticket in tickets:
        settle(quota, ticket)
    assert used(quota, Unit.CONCURRENT_REQUESTS) == 0


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"prompt": "a"}, 1),
        ({"prompt": ["a", "b", "c"]}, 3),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]], "n": 4}, 8),
        ({"prompt": ["a", "b"], "n": 2, "best_of": 5}, 10),
        ({"prompt": [], "best_of": "many"}, 1),
        ({"prompt": {"a": 1}}, 1),
    ],
)
def test_every_prompt_of_completions_has_its_answers(fields: dict[str, Any], answers: int) -> None:
    """One request with many prompts passes no limit of output that as many requests would not."""
    quota = quota_of(tenant={"limits": {"output_tokens_per_min": 1000}})
    ticket = reserve(quota, request_of(limit=50, dialect=ApiDialect.COMPLETIONS, fields=fields))
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == 50 * answers
    settle(quota, ticket)
    assert used(quota, Unit.OUTPUT_TOKENS_PER_MIN) == 20


def shared_meters() -> MeterFactory:
    desk = LeaseDesk("m", is_open=True, member_s=5.0, wake=lambda: None)
    desk.lose("gone", NOW_S)
    return desk


@pytest.mark.parametrize("meters", [shared_meters, lambda: LocalMeters(WallOffset(1_000_000.0, 0.0))])
def test_what_was_spent_is_known_to_meters_that_come_later(meters: Callable[[], MeterFactory]) -> None:
    """A worker is told of spent budgets before its plan says by which meters they count."""
    quota = Quota(LocalMeters(WallOffset(1_000_000.0, 0.0)))
    today = 1_001_000.0 // 86400 * 86400
    quota.raise_spent(
        (Spent(level=Level.TENANT, name="t", unit=Unit.BUDGET_PER_DAY, nanos=10**9, period_start_at=today),)
    )
    quota.use_meters(meters())
    adopt(quota, tenant={"budget": {"per_day": 1}}, prices=PRICES)
    with pytest.raises(RequestError) as refused:
        reserve(quota)
    assert refused.value.code is ErrorCode.QUOTA_EXHAUSTED


@pytest.mark.parametrize("dialect", [ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS])
def test_best_of_counts_as_so_many_answers_on_any_api(dialect: ApiDialect) -> None:
    """Some engines compute them for a chat as well: a cap on answers is not passed by another name."""
    quota = quota_of(tenant={"limits": {"per_request": {"choices": 4}}})
    assert quota.reserve(CALLER, request_of(dialect=dialect, fields={"best_of": 4}), NOW_S) is not None
    with pytest.raises(RequestError, match="asks for 5 choices"):
        quota.reserve(CALLER, request_of(dialect=dialect, fields={"best_of": 5}), NOW_S)


@pytest.mark.parametrize("name", ["n", "best_of"])
def test_more_output_than_can_be_counted_is_refused(name: str) -> None:
    """Answers times tokens is bounded too, with speeds, limits and prices: no sum overflows."""
    tenant = {"limits": {"gpu_seconds_per_min": 1000}, "budget": {"per_day": 5}}
    quota = quota_of({"rates": RATES}, tenant=tenant, prices=PRICES)
    with pytest.raises(RequestError) as refused:
        quota.reserve(CALLER, request_of(limit=2**31 - 1, fields={name: 2**31 - 1}), NOW_S)
    assert (refused.value.code, refused.value.param) == (ErrorCode.INVALID_REQUEST, "n")
    with pytest.raises(RequestError) as refused:
        quota.reserve(CALLER, request_of(limit=2**31 - 1, fields={name: 500}), NOW_S)
    assert refused.value.code is not ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("prompt", "count"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3], [4]], 3), ([], 1), (["a"], 1)]
)
def test_each_prompt_of_a_completion_is_answered(prompt: object, count: int) -> None:
    """Texts and lists of tokens are counted, a list of tokens is one."""
    quota = quota_of(tenant={"limits": {"per_request": {"choices": 3}}})
    ticket = quota.reserve(CALLER, request_of(dialect=ApiDialect.COMPLETIONS, fields={"prompt": prompt}), NOW_S)
    assert ticket is not None
    assert ticket.choices == count
