"""The simulated engine's HTTP: what comes in in pieces, at once, or wrong."""

import json
from typing import Any

import pytest
from tests.harness.raw_client import RawClient, get, post
from tests.harness.simulated_engine import MODEL, serving, simulated

ASKED: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_a_request_may_come_in_pieces(size: int):
    """However the bytes are cut, the answer is the same."""
    async with serving(simulated()) as (service, _), RawClient(service.port) as client:
        data = post(ASKED, None)
        for at in range(0, len(data), size):
            await client.send(data[at : at + size])
        assert (await client.answer()).status == 200


async def test_a_connection_serves_many_requests_in_order():
    """Requests that are sent at once are answered one after the other, streams among them."""
    async with serving(simulated()) as (service, _), RawClient(service.port) as client:
        await client.send(post(ASKED, None) + post({**ASKED, "stream": True}, None) + get("/health") + get("/none"))
        answers = [await client.answer() for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 404]
        assert answers[1].body.endswith(b"data: [DONE]\n\n")
        assert answers[1].headers["content-type"].startswith("text/event-stream")


async def test_a_client_that_asks_to_close_is_obeyed():
    """`connection: close` ends the connection after the answer."""
    async with serving(simulated()) as (service, _), RawClient(service.port) as client:
        await client.send(post(ASKED, None, connection="close"))
        assert (await client.answer()).status == 200
        assert await client.is_closed()


async def test_what_is_no_http_is_refused():
    """Bytes of another kind get 400, and the connection ends."""
    async with serving(simulated()) as (service, _), RawClient(service.port) as client:
        await client.send(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await client.answer()).status == 400
        assert await client.is_closed()


async def test_an_expected_continue_is_given():
    """curl sends large bodies so."""
    async with serving(simulated()) as (service, _), RawClient(service.port) as client:
        body = json.dumps(ASKED).encode()
        head, _, _ = post(body, None, expect="100-continue").partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert (await client.head())[0] == 100
        await client.send(body)
        assert (await client.answer()).status == 200
