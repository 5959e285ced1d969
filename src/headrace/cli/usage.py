"""`headrace usage`: who used how much, and whether the ledger is complete; with and without a running instance."""

import csv
import io
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from headrace.cli.control_client import ControlClient
from headrace.cli.ledger_access import open_access, refusing_wrong_usage
from headrace.cli.options import ConfigOption, JsonOption, verb_app
from headrace.cli.output import EXIT_PROBLEMS, EXIT_USAGE, NOT_MEASURED, emit, fail, table
from headrace.declaration.nearest import did_you_mean
from headrace.domain.quota import NANOS
from headrace.fleet.deploy.state_files import find_supervisor
from headrace.ledger.projector import DAY_S
from headrace.ledger.usage import Percentiles, UsageFilter, UsageGroup, UsageReport, UsageRow, read_usage
from headrace.ledger.verify import LedgerCheck, verify_ledger
from headrace.settings import Settings
from headrace.tenancy.key_wish import parse_span_s

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()

COST = "cost"
COLUMNS = (
    *("requests", "completed", "rejected", "evicted", "failed", "cancelled"),
    *("input tokens", "cached input tokens", "output tokens"),
    *("GPU s", COST),
    *("TTFT p50 s", "TTFT p99 s", "E2E p50 s", "E2E p99 s"),
)
_EXPENDABLE = (
    *("evicted", "cancelled", "cached input tokens", "E2E p50 s", "TTFT p50 s", "GPU s"),
    *("input tokens", "output tokens", COST, "TTFT p99 s", "E2E p99 s"),
)
"""What a narrow screen does without, the least first; CSV and JSON have all. How many requests there were, and how
many came to nothing, is always there."""
_STATUS_S = 5.0


class UsageFormat(StrEnum):
    """How usage is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class LedgerVerdict(LedgerCheck, frozen=True, kw_only=True):
    """What `headrace usage verify --json` prints."""

    live_dropped_records: int | None
    """What the workers that run now have dropped; None: none run."""


SinceOption = Annotated[str, typer.Option("--since", metavar="TIME", help="How far back: 90m, 24h, 30d, 2w.")]
ByOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="GROUPS",
        help=f"What to sum up by, with commas for more: {', '.join(UsageGroup)}. Days are UTC.",
    ),
]
OnlyTenantOption = Annotated[str | None, typer.Option("--tenant", "-t", metavar="TENANT", help="Only this tenant.")]
OnlyProjectOption = Annotated[str | None, typer.Option("--project", "-p", metavar="PROJECT", help="Only this project.")]
OnlyModelOption = Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL", help="Only this model.")]
OnlyKeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="KEY_ID", help="Only this key.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="The same as --format csv.")]
FormatOption = Annotated[UsageFormat, typer.Option("--format", "-f", help="How to print it; csv is for spreadsheets.")]


@app.callback(invoke_without_command=True, epilog="Example: headrace usage --since 7d --by tenant,model")
def usage(
    context: typer.Context,
    since: SinceOption = "24h",
    by: ByOption = UsageGroup.TENANT.value,
    tenant: OnlyTenantOption = None,
    project: OnlyProjectOption = None,
    model: OnlyModelOption = None,
    key: OnlyKeyOption = None,
    output: FormatOption = UsageFormat.TABLE,
    config: ConfigOption = None,
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show requests by outcome, tokens, GPU time, cost and latencies, summed up by tenant, project, model, day, ...

    Latencies are those of the gateway: request received to first output, and to the last.
    """
    if context.invoked_subcommand is not None:
        return
    with refusing_wrong_usage():
        span_s = parse_span_s(since)
    only = UsageFilter(tenant=tenant, project=project, model=model, key_id=key)
    with open_access(config) as access:
        until_at = access.clock.wall_at().timestamp()
        report = read_usage(access.database, since_at=until_at - span_s, until_at=until_at, by=_groups(by), only=only)
        if not report.rows:
            access.check_names(tenant=tenant, project=project, model=model, key=key)
        currency = access.loaded.declaration.prices.currency
    if (as_csv or output is UsageFormat.CSV) and not as_json:
        print(_csv(report), end="")
        return
    is_json = as_json or output is UsageFormat.JSON
    emit("usage", report, as_json=is_json, human=lambda: usage_table(report, currency))


@app.command(epilog="Example: headrace usage verify")
def verify(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Compare the journal with the database: what waits, what was lost. Exits with 3 where rows are missing."""
    with open_access(config) as access:
        days = access.loaded.declaration.ledger.retention_days
        kept_since_at = 0.0 if days is None else access.clock.wall_at().timestamp() - days * DAY_S
        check = verify_ledger(access.settings.journal_dir, access.database, kept_since_at=kept_since_at)
        live_dropped = _find_live_dropped(access.settings)
    verdict = LedgerVerdict(**msgspec.structs.asdict(check), live_dropped_records=live_dropped)
    emit("usage-verify", verdict, as_json=as_json, human=lambda: verdict_text(verdict))
    if not check.is_complete:
        raise typer.Exit(EXIT_PROBLEMS)


def usage_table(report: UsageReport, currency: str) -> "RenderableType":
    """Show sums by group, and in total."""
    rows: list[tuple[object, ...]] = [(*_names(row, "(unknown)"), *_cells(row)) for row in report.rows]
    rows.append(("total", *([""] * (len(report.by) - 1)), *_cells(report.total)))
    span = f"{_moment(report.since_at)} to {_moment(report.until_at)} UTC; latencies as the gateway saw them"
    if report.total.other_requests:
        span += f"; besides, {report.total.other_requests} requests for lists, files and batches"
    columns, expendable = (
        [f"cost {currency}" if one == COST else one for one in each] for each in (COLUMNS, _EXPENDABLE)
    )
    return table(
        (*(group.value for group in report.by), *columns), rows, title=span, expendable=expendable, is_dense=True
    )


def _groups(text: str) -> tuple[UsageGroup, ...]:
    try:
        return tuple(dict.fromkeys(UsageGroup(part.strip()) for part in text.split(",")))
    except ValueError:
        wrong = next(part.strip() for part in text.split(",") if part.strip() not in {*UsageGroup})
        hint = f"{did_you_mean(wrong, [*UsageGroup])} Several are joined by commas: --by tenant,model."
        fail(f'usage is not summed up by "{wrong[:80]}"', hint=hint, code=EXIT_USAGE)


def _csv(report: UsageReport) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = (column.replace(" ", "_").lower() for column in COLUMNS)
    writer.writerow((*(group.value for group in report.by), *names))
    writer.writerows((*_names(row, ""), *_cells(row, not_measured="")) for row in report.rows)
    return stream.getvalue()


def _names(row: UsageRow, unknown: str) -> tuple[str, ...]:
    return tuple(name or unknown for name in row.groups)


def _cells(row: UsageRow, not_measured: str = NOT_MEASURED) -> list[object]:
    counts = (row.requests, row.completed, row.rejected, row.evicted, row.failed, row.cancelled)
    tokens = (row.input_tokens, row.cached_input_tokens, row.output_tokens)
    cells: list[object] = [*counts, *(not_measured if one is None else one for one in tokens)]
    cells.append(not_measured if row.gpu_s is None else f"{row.gpu_s:.3f}")
    cells.append(not_measured if row.cost_nanos is None else f"{row.cost_nanos / NANOS:.6f}")
    for measured in (row.ttft, row.e2e):
        cells += _seconds(measured) if measured is not None else [not_measured, not_measured]
    return cells


def _seconds(measured: Percentiles) -> list[str]:
    return [f"{measured.p50_s:.4f}", f"{measured.p99_s:.4f}"]


def verdict_text(check: LedgerVerdict) -> str:
    """Say what waits, what was lost, and whether the ledger is whole."""
    live_dropped = check.live_dropped_records
    lost = (
        f"lost for ever: {check.dropped_records} records dropped, {check.torn_bytes} bytes torn by a crash, "
        f"{check.refused_records} records refused by the database"
    )
    lines = [
        f"{check.rows} requests in the database; {check.segments} journal file(s)",
        f"{check.waiting_records} records ({check.waiting_bytes} bytes) wait for the database",
        f"{check.checked_records} records of these files must be rows by now; {check.missing_records} are not",
        lost,
    ]
    if live_dropped is not None:
        lines.append(f"dropped by the workers that run now: {live_dropped} records (journalled with the next flush)")
    lines.append("complete" if check.is_complete else "INCOMPLETE: restore a back-up and let the journal be replayed")
    return "\n".join(lines)


def _find_live_dropped(settings: Settings) -> int | None:
    """What running workers have dropped so far; None where no instance runs."""
    if find_supervisor(settings) is None:
        return None
    with ControlClient(settings, timeout_s=_STATUS_S) as client:
        status = client.try_status()
    return None if status is None else status.ledger.dropped


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M}"
