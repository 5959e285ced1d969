"""Questions to engines that run elsewhere, before any gateway does: `headrace check` and `up --endpoint` ask them.

Counterpart: `gateway/endpoints/questions.py`, by which a running gateway asks.
"""

import ssl

import httpx

from headrace.declaration.model import Pool
from headrace.engines.contract import ProbeReply

MOST_AT_ONCE = 32
"""Engines that are asked at the same time."""
MOST_ANSWER_BYTES = 4 << 20
"""Of one answer; what is longer is not read. Metrics and model lists stay far below."""
ASK_S = 3.0
"""All questions to one engine. Chosen: a healthy one answers at once, and a person waits for it."""


def pool_client(pool: Pool) -> httpx.AsyncClient:
    """A client with the pool's credentials, trust and certificate.

    Raises: OSError, ValueError where the certificate or its key cannot be used.
    """
    trust = ssl.create_default_context(cafile=pool.tls.ca)
    if pool.tls.certificate is not None:
        trust.load_cert_chain(pool.tls.certificate, pool.tls.key, password="")  # an encrypted key asks nobody
    headers = dict(pool.credentials.headers)
    if pool.credentials.bearer is not None:
        headers["authorization"] = f"Bearer {pool.credentials.bearer}"
    return httpx.AsyncClient(headers=headers, verify=trust, timeout=ASK_S, trust_env=False)


async def ask_url(client: httpx.AsyncClient, url: str, *, server_name: str | None = None) -> ProbeReply:
    """GET `url`, at most MOST_ANSWER_BYTES of it. Raises: httpx.HTTPError, httpx.InvalidURL."""
    extensions = {"sni_hostname": server_name} if server_name else {}
    async with client.stream("GET", url, extensions=extensions) as answer:
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > MOST_ANSWER_BYTES:
                break
        return ProbeReply(status=answer.status_code, body=bytes(body))
