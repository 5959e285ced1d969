"""The dashboard's expressions over what a real gateway with a simulated engine exposes."""

import asyncio
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.harness.promql_checks import all_queries, is_near, wrong_answers
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.control_api.operations import ReplicaStatus
from headrace.telemetry.catalogue import METRICS, MetricKind
from headrace.wiring.metrics_text import merge_metrics, own_metrics

REQUESTS, OUTPUT_TOKENS = 3, 5
"""Per scrape: of two scrapes a series is made that goes on like this every minute."""
NOT_HERE = (
    "ALERTS", 'outcome!="completed"', "headrace_queue_refusals", "headrace_queue_degraded", "headrace_budget",
    "headrace_quota_refusals", "headrace_cache_miss", "headrace_routing_left_out", "headrace_model_choices",
    "headrace_kv_events", "headrace_handover", "headrace_failovers", "headrace_resume", "headrace_unresumed",
    "headrace_hedges", "headrace_queue_withdrawals", "headrace_retries", "headrace_engine_cancels",
    "headrace_sharing", "headrace_identity",
)  # fmt: skip
"""What is not declared here, or did not happen: its panels have nothing to show, and no error."""


async def ask(gateway: RunningGateway) -> None:
    prompt = "The same long beginning of every prompt. " * 60
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": OUTPUT_TOKENS}
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {gateway.key}"}) as client:
        for _ in range(REQUESTS):
            answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body | {"stream": True})
            assert answer.status_code == 200, answer.text
    await gateway.wait_idle()


async def scrape(gateway: RunningGateway) -> dict[str, float]:
    """The series of a page as the control port gives it: the worker's, and the supervisor's own."""
    replica = ReplicaStatus(
        endpoint="p/0", pool="p", engine="vllm", launch="", url=None, pid=None, phase="ready", reason="", since_at=0.0
    )
    own = own_metrics([replica], gateway_restarts=0, ledger_waiting_records=0)
    page = merge_metrics([await gateway.metrics()], own)
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in {**sample.labels, "instance": "g"}.items())
            if not sample.name.endswith("_created"):
                found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_the_panels_show_what_a_gateway_exposes(tmp_path: Path) -> None:
    """Figures are right, panels of what was not declared are empty, and every name on the page is in the catalogue."""
    prices = {"currency": "EUR", "models": {"m": {"output_per_million": 1_000_000}}}
    rates = {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100}
    async with serving(simulated()) as (one, _), serving(simulated()) as (two, _):
        urls = [f"http://127.0.0.1:{service.port}" for service in (one, two)]
        pool = remote_pool(*urls, engine="vllm", served_model=MODEL, rates=rates, queue={"sequences": 8})
        async with RunningGateway(tmp_path, declare({"p": pool}, prices=prices)) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with asyncio.timeout(60):
                while await gateway.metric("headrace_pool_measured_engines") != 2:
                    await asyncio.sleep(0.05)
            await ask(gateway)
            first = await scrape(gateway)
            await ask(gateway)
            second = await scrape(gateway)
    known = {metric.name: metric for metric in METRICS}
    series: dict[str, str] = {}
    for name, value in second.items():
        plain = name.partition("{")[0]
        metric = known.get(plain) or known[plain.rpartition("_")[0]]
        grows = 0 if metric.kind is MetricKind.GAUGE else value - first.get(name, value)
        series[name] = f"{value}+{grows}x20"
    expr_of = dict(reversed(all_queries()))
    a_second = REQUESTS / 60
    expected = {
        "Is it fine? / Requests": a_second,
        "Is it fine? / Failed": 0.0,
        "Is it fine? / Turned away": 0.0,
        "Is it fine? / Now": 0.0,
        "Is it fine? / Engines out": 0.0,
        "Is it fine? / Gateways": 1.0,
        "Load / Endpoint states": 1.0,
        "Load / Replica phases": 1.0,
        "The gateway itself / Records and log lines lost": 0.0,
    }
    checks = [is_near(expr_of[title], value) for title, value in expected.items()]
    output = f"sum({expr_of['Tokens and cost by tenant / Output tokens']})"
    cost = f"sum({expr_of['Tokens and cost by tenant / Cost per hour']})"
    outcomes = expr_of["Is it fine? / Requests by outcome"]
    checks.append(is_near(f"{outcomes} and {outcomes} > 0", a_second))
    checks += [is_near(output, a_second * OUTPUT_TOKENS), is_near(cost, 3600 * a_second * OUTPUT_TOKENS)]
    checks.append(f"({expr_of['Cache and routing / Cached share of input tokens']}) > 0.5 < 1")
    is_silent = {expr: any(word in expr for word in NOT_HERE) for _, expr in all_queries()}
    shown = [expr for expr, silent in is_silent.items() if not silent]
    silent = [expr for expr, silent in is_silent.items() if silent]
    wrong = wrong_answers(tmp_path, series, told=[*shown, *checks], silent=silent)
    assert wrong == [], "\n".join(wrong)
