"""Sends planned requests to a server as streams and writes down when their tokens came."""

import asyncio
import json
import random
import time
from collections.abc import Callable

import httpx

from headrace.simulation.samples import MeasuredRequest, MeasuredRun, PlannedRequest

WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name team minute idea body back parent face level office door "
    "health person art war history party result change morning reason research girl guy moment air teacher force"
).split()
"""Frequent English words, each one token in the vocabularies of today."""
REQUEST_TIMEOUT_S = 900.0


class Server:
    """One server under measurement, with prompts of exact lengths that share no prefix."""

    def __init__(
        self, url: str, model: str, seed: int, *, has_slots: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        # A connection for each request: llama.cpp closes idle ones, at times just when they are used again.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(base_url=url, timeout=REQUEST_TIMEOUT_S, limits=limits)
        self._model = model
        self._now_s = clock
        self._random = random.Random(seed)
        self._has_slots = has_slots
        """llama.cpp: each stream of a run names its slot. The engine would choose by last use, and computes prompts in
        the order of slots, not of arrival: runs would differ by what ran before."""
        self._extra_tokens = 0

    async def close(self) -> None:
        await self._client.aclose()

    async def calibrate_length(self) -> None:
        """Find how many tokens the server counts beyond the words (a token for the beginning of the text, or none)."""
        words = 32
        answer = await self._client.post("/v1/completions", json=self._body(words, 1, is_stream=False))
        answer.raise_for_status()
        self._extra_tokens = answer.json()["usage"]["prompt_tokens"] - words

    def _body(self, words: int, output_tokens: int, *, is_stream: bool) -> dict[str, object]:
        prompt = " " + " ".join(self._random.choice(WORDS) for _ in range(words))
        body: dict[str, object] = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": is_stream,
        }
        return {**body, "stream_options": {"include_usage": True}} if is_stream else body

    async def run(self, plan: list[PlannedRequest]) -> MeasuredRun:
        """Send a plan's requests, each at its time; return what was measured."""
        started_mono_s = self._now_s()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._request(planned, index, started_mono_s)) for index, planned in enumerate(plan)
            ]
        return MeasuredRun(requests=[task.result() for task in tasks])

    async def _request(self, planned: PlannedRequest, index: int, started_mono_s: float) -> MeasuredRequest:
        body = self._body(planned.input_tokens - self._extra_tokens, planned.output_tokens, is_stream=True)
        if self._has_slots:
            body["id_slot"] = index
        await asyncio.sleep(planned.sent_at_s)
        sent_at_s = self._now_s() - started_mono_s
        first_at_s = last_at_s = 0.0
        usage: dict[str, int] = {}
        async with self._client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                raise SystemExit(f"the server answered {answer.status_code}: {(await answer.aread()).decode()[:500]}")
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                now_s = self._now_s() - started_mono_s
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                if event.get("choices"):
                    first_at_s, last_at_s = first_at_s or now_s, now_s
        if not usage:
            raise SystemExit("the server reports no usage in streams: lengths cannot be checked")
        return MeasuredRequest(
            sent_at_s=sent_at_s,
            input_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            first_token_at_s=first_at_s,
            ended_at_s=last_at_s,
        )


def plan_of(streams: int, input_tokens: int, output_tokens: int, stagger_s: float) -> list[PlannedRequest]:
    """Return so many equal requests, sent one shortly after the other: which one comes first is then no chance."""
    return [
        PlannedRequest(sent_at_s=index * stagger_s, input_tokens=input_tokens, output_tokens=output_tokens)
        for index in range(streams)
    ]
