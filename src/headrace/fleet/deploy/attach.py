"""Ask a running engine what it is: the I/O of `headrace up --endpoint URL` and of pools with endpoints."""

import asyncio
import ssl
from collections.abc import Mapping

import httpx

from headrace.engines.contract import ProbeReply
from headrace.engines.detection import DETECTION_PATHS, Detected, detect
from headrace.fleet.deploy.engine_questions import ask_url


class EndpointUnreachableError(Exception):
    """No engine answers at the URL; the message says which URL, why, and what to check."""


async def detect_engine(
    url: str,
    headers: Mapping[str, str] | None = None,
    verify: bool | ssl.SSLContext = True,
    *,
    timeout_s: float = 10.0,
) -> Detected:
    """Return engine kind and served models of the server at `url`.

    Raises: EndpointUnreachableError where nothing answers HTTP there, or something that is no engine.
    """
    trust = ssl.create_default_context() if verify is True else verify
    async with httpx.AsyncClient(
        headers=dict(headers or {}), verify=trust, timeout=timeout_s, trust_env=False
    ) as client:
        reasons: list[str] = []
        address = url.rstrip("/").removesuffix("/v1")
        asked = [_ask(client, f"{address}{path}", reasons) for path in DETECTION_PATHS]
        replies: dict[str, ProbeReply] = dict(zip(DETECTION_PATHS, await asyncio.gather(*asked), strict=True))
    found = detect(replies)
    if not found.is_alive:
        reason = reasons[0].rstrip(".") if reasons else "no answer"
        raise EndpointUnreachableError(
            f"no engine answers at {url}: {reason}. Check host, port and scheme (http or https), and that it has "
            "finished loading"
        )
    if not found.is_engine:
        raise EndpointUnreachableError(f"no engine answers at {url}: {_not_an_engine(replies['/v1/models'])}")
    return found


def _not_an_engine(listing: ProbeReply) -> str:
    said = "no answer" if listing.status is None else f"HTTP {listing.status}"
    if listing.status == 200:
        said = "no list of models"
    return (
        f"something else is there, as GET /v1/models gives {said}. Check host, port and path; an engine that lists no "
        "models is declared in headrace.yaml, in a pool with `endpoints`"
    )


async def _ask(client: httpx.AsyncClient, url: str, reasons: list[str]) -> ProbeReply:
    try:
        return await ask_url(client, url)
    except httpx.TimeoutException:
        reasons.append("no answer in time")
        return ProbeReply(status=None, is_timeout=True)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        reasons.append(str(error) or type(error).__name__)
        return ProbeReply(status=None, is_refused=True)
