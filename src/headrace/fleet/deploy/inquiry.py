"""Asking one engine over HTTP: is it up (probe), does it answer a real request (warm-up)."""

import httpx

from headrace.engines.contract import Driver, ProbeReply, ProbeVerdict
from headrace.engines.handover import find_handover_words
from headrace.fleet.deploy.replica_plan import ReplicaPlan

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


async def probe_engine(client: httpx.AsyncClient, url: str, driver: Driver, timeout_s: float) -> ProbeVerdict:
    """GET the driver's ready path and let the driver judge."""
    try:
        response = await client.get(url + driver.ready_path, timeout=timeout_s)
    except httpx.ConnectError:
        return driver.read_probe(ProbeReply(status=None, is_refused=True))
    except httpx.TimeoutException:
        return driver.read_probe(ProbeReply(status=None, is_timeout=True))
    except httpx.TransportError:
        return driver.read_probe(ProbeReply(status=None))
    return driver.read_probe(ProbeReply(status=response.status_code, body=response.content))


async def warm_engine(client: httpx.AsyncClient, url: str, driver: Driver, plan: ReplicaPlan) -> str | None:
    """Send one tiny real request; the answer says why it was not answered.

    Halves that answer nothing alone (SGLang's) are not asked: they warm themselves up before they say
    that they are ready.
    """
    if not _answers_alone(plan):
        return None
    path, body = _tiny_request(driver, plan)
    try:
        response = await client.post(url + path, json=body, timeout=plan.bounds.warm_timeout_s)
    except httpx.TransportError as error:
        return f"the first request was not answered: {type(error).__name__} {error}"
    if not response.is_success:
        return f"the first request was answered {response.status_code}: {response.text[:200]}"
    return None


def _answers_alone(plan: ReplicaPlan) -> bool:
    role = plan.shape.options.disaggregation
    words = None if role is None else find_handover_words(plan.shape.engine)
    return words is None or words.serves_whole


def _tiny_request(driver: Driver, plan: ReplicaPlan) -> tuple[str, dict[str, object]]:
    model = plan.shape.served_model
    if plan.shape.embeddings:
        return EMBEDDINGS, {"model": model, "input": "ready?"}
    if CHAT in driver.dialect.paths:
        return CHAT, {"model": model, "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1}
    return COMPLETIONS, {"model": model, "prompt": "ready?", "max_tokens": 1}
