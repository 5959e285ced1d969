"""`headrace route advise` on a running instance: two gateway workers, a prefill and a decode engine, and one alone."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from tests.drill.instance import Instance
from tests.harness.polling import wait_until
from tests.harness.simulated_engine import MODEL, SimulatedProcess

from headrace.engines.simulated.config import DialectKind

LONG, SHORT = 12, 8
"""Requests that are handed over, and those that are too short for it."""


def pool_of(url: str, **more: Any) -> dict[str, Any]:
    probe = {"interval_s": 0.2, "timeout_s": 2.0}
    return {"model": MODEL, "engine": "vllm", "endpoints": [url], "probe": probe, **more}


def declare(instance: Instance, prefill: SimulatedProcess, decode: SimulatedProcess) -> None:
    handover = {"min_tokens": 100, "min_gain_s": -60, "timeout_s": 10, "kv_bytes_per_token": 1000}
    instance.declaration["gateway"]["workers"] = 2
    instance.declaration["models"] = {MODEL: {}, "other": {}}
    instance.declaration["pools"] = {
        "prefill": pool_of(prefill.url, disaggregation={"role": "prefill"}, handover=handover),
        "decode": pool_of(decode.url, disaggregation={"role": "decode"}, handover=handover),
        "alone": pool_of(decode.url, served_model=MODEL) | {"model": "other"},
    }
    instance.write()


def ask(instance: Instance, number: int) -> int:
    """One streamed request over a connection of its own, so that both workers get some."""
    text = f"{number} words that nobody has cached, " * (60 if number < LONG else 1)
    message = {"role": "user", "content": text}
    body = {"model": MODEL, "messages": [message], "max_tokens": 12, "stream": True}
    url, key = f"http://127.0.0.1:{instance.port}/v1/chat/completions", f"Bearer {instance.key}"
    return httpx.post(url, json=body, headers={"authorization": key}, timeout=60).status_code


def advice(instance: Instance, *words: str) -> tuple[int, dict[str, Any]]:
    told = instance.run("route", "advise", "--json", *words)
    return told.returncode, json.loads(told.stdout)["data"]


def drive(instance: Instance, prefill: SimulatedProcess, decode: SimulatedProcess) -> None:
    declare(instance, prefill, decode)
    instance.up()
    told = instance.run("route", "advise")
    assert (told.returncode, told.stdout.count("nothing measured yet")) == (0, 2), told.stderr
    unknown = instance.run("route", "advise", "--pool", "decoder")
    assert (unknown.returncode, 'Did you mean "decode"?' in unknown.stderr) == (2, True), unknown.stderr
    wait_until(lambda: len(instance.status()["endpoints"]) == 3, "endpoints")
    with ThreadPoolExecutor(4) as callers:
        assert set(callers.map(lambda number: ask(instance, number), range(LONG + SHORT))) == {200}
    check_numbers(instance)
    shown = instance.run("route", "advise", "--pool", "decode").stdout
    for words in (
        "20 requests",
        "splitting pays: ",
        "predicted gain of a split one s",
        "prefill:decode engines now",
        "1:1 (",
    ):
        assert words in shown, shown
    assert "other" not in shown
    assert "nothing measured yet" in instance.run("route", "advise", "--pool", "alone").stdout
    assert instance.run("down").returncode == 0
    gone = instance.run("route", "advise")
    assert (gone.returncode, "headrace up" in gone.stderr) == (1, True), gone.stderr


def check_numbers(instance: Instance) -> None:
    """What both workers measured, added up."""
    code, found = advice(instance, "--pool", "prefill")
    (one,) = found["models"]
    totals = one["load"]["totals"]
    assert (found["workers"], totals["requests"]) == (2, LONG + SHORT)
    assert totals["decisions"] == {"gain": LONG, "short": SHORT}
    assert (totals["ended"], one["fallback_ratio"]) == ({"completed": LONG}, 0.0)
    assert one["split_ratio"] == LONG / (LONG + SHORT)
    assert one["load"]["handed_tokens_per_s"] <= one["load"]["uncached_tokens_per_s"]
    assert one["transfer_s"] >= 0
    assert (one["present"]["prefill"], one["present"]["decode"]) == (1, 1)
    assert one["pays"] is (one["gain_s"] > 0)
    assert code == (3 if one["changes"] else 0)
    rates = {pace["pool"]: pace for pace in one["load"]["pools"]}
    assert (rates["prefill"]["prefill_from"], rates["decode"]["decode_from"]) == ("first tokens", "answers")


async def test_operators_are_told_whether_splitting_pays(tmp_path: Path) -> None:
    """Before traffic nothing is measured; afterwards the figures of both workers add up to what was sent, a pool that
    does not exist is refused with the nearest name, and so is a question to an instance that is down."""
    engines = (SimulatedProcess(DialectKind.VLLM, tmp_path, "--role", role) for role in ("prefill", "decode"))
    prefill, decode = engines
    async with prefill, decode:
        instance = Instance(tmp_path)
        try:
            await asyncio.to_thread(drive, instance, prefill, decode)
        finally:
            instance.end()
