"""Sixth row: prefill and decode apart."""

from headrace.fleet.observe.dashboard.latency import percentiles
from headrace.fleet.observe.dashboard.panel import Color, Panel, Query, Row, Threshold, Unit
from headrace.fleet.observe.dashboard.promql import largest, per_second, ratio, ratio_or_zero, troubles
from headrace.telemetry import catalogue

ROW = Row(
    title="Disaggregation (prefill and decode apart)",
    panels=(
        Panel(
            title="Hand-overs by end",
            description="completed; fell-back: one engine answered after all; passed-on, broken, caller-left. No data "
            "in this row: no pools of both roles are declared, or nothing was split yet.",
            queries=(Query(per_second(catalogue.HANDOVERS, by=("model", "end")), "{{model}} {{end}}"),),
            unit=Unit.PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Share that falls back",
            description="Each such prompt is computed twice. The alert HeadraceHandoversFail fires at the line.",
            queries=(
                Query(
                    ratio_or_zero(
                        per_second(catalogue.HANDOVER_FALLBACKS, by=("model",)),
                        per_second(catalogue.HANDOVERS, by=("model",)),
                    ),
                    "{{model}}",
                ),
            ),
            unit=Unit.SHARE, thresholds=(Threshold(0.1, Color.ORANGE),),
        ),
        Panel(
            title="Fallbacks by reason",
            description="At which step it failed: docs/disaggregation.md.",
            queries=(Query(troubles(catalogue.HANDOVER_FALLBACKS, by=("model", "reason")), "{{model}} {{reason}}"),),
            unit=Unit.PER_MINUTE, is_stacked=True,
        ),
        Panel(
            title="Split or whole, and why",
            description="Requests with reason gain were split, all others stayed whole. headrace route advise says "
            "whether splitting pays.",
            queries=(Query(per_second(catalogue.HANDOVER_DECISIONS, by=("model", "reason")), "{{model}} {{reason}}"),),
            unit=Unit.REQUESTS_PER_SECOND, is_stacked=True,
        ),
        Panel(
            title="Stages of the time to first token",
            description="Of split requests: prefill_queue (as predicted), prefill, transfer, decode_queue. Which of "
            "them grows says what is short: prefill engines, the link, decode engines.",
            queries=percentiles(catalogue.HANDOVER_STAGES, "model", "stage"),
            unit=Unit.SECONDS, width=16, has_figures=True,
        ),
        Panel(
            title="Where the time to first token goes",
            description="Mean seconds of each stage per split request.",
            queries=(
                Query(
                    ratio(
                        per_second(catalogue.HANDOVER_STAGES, by=("model", "stage"), suffix="_sum"),
                        per_second(catalogue.HANDOVER_STAGES, by=("model", "stage"), suffix="_count"),
                    ),
                    "{{model}} {{stage}}",
                ),
            ),
            unit=Unit.SECONDS, is_stacked=True,
        ),
        Panel(
            title="Prompt tokens handed over",
            description="Tokens whose KV went from a prefill to a decode engine.",
            queries=(Query(per_second(catalogue.HANDOVER_TOKENS, by=("model",)), "{{model}}"),),
            unit=Unit.TOKENS_PER_SECOND,
        ),
        Panel(
            title="KV bytes handed over",
            description="No data where the size of a token is not known (pools.<name>.handover.kv_bytes_per_token).",
            queries=(Query(per_second(catalogue.HANDOVER_BYTES, by=("model",)), "{{model}}"),),
            unit=Unit.BYTES_PER_SECOND,
        ),
        Panel(
            title="Pairs of engines",
            description="Pairs that fit, that never can (kv_layout_mismatch), or of which an engine has not said what "
            "it is. None that fits: nothing is handed over; headrace status names what differs.",
            queries=(Query(largest(catalogue.HANDOVER_PAIRS, by=("model", "state")), "{{model}} {{state}}"),),
            unit=Unit.COUNT,
        ),
    ),
    is_open=False,
)  # fmt: skip
