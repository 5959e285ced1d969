"""Streams of the real embedded engine, cut at many places and gone on with by itself: as if nothing had happened."""

from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.engine import RunningEngine
from tests.harness.cutting_proxy import CuttingProxy
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.told_stream import ToldStream, text_in

pytestmark = pytest.mark.engine

CUTS = (2, 3, 5, 8, 13, 19)
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count from one to ten, in words."}]}),
    "completions": ("/v1/completions", {"prompt": "One, two, three,"}),
}


@pytest.mark.parametrize("name", ASKED)
async def test_a_cut_stream_of_llamacpp_is_the_undisturbed_one(
    embedded_engine: RunningEngine, tmp_path: Path, name: str
) -> None:
    """Wherever it is cut the text is that of a run that nothing disturbed, and so are its usage and its end."""
    path, fields = ASKED[name]
    body = {"model": "m", "temperature": 0, "max_tokens": 24, "stream_options": {"include_usage": True}, **fields}
    async with CuttingProxy(embedded_engine.host, embedded_engine.port) as proxy:
        pool = remote_pool(proxy.url, engine="llamacpp", served_model=embedded_engine.model, probe={"eject_after": 100})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready()
            undisturbed = await ToldStream(body).read(gateway.port, gateway.key, path)
            for count, cut in enumerate(CUTS, 1):
                proxy.cut_after_events = cut
                stream = await ToldStream(body).read(gateway.port, gateway.key, path)
                assert proxy.cuts == count
                assert stream.text.startswith(text_in(proxy.passed))
                assert await gateway.metric('headrace_resumes_total{cause="died",model="m"}') == count
                assert stream.error is None
                assert stream.text == undisturbed.text, f"cut after {cut} events"
                assert stream.reasons == undisturbed.reasons
                assert stream.roles == undisturbed.roles
                assert stream.usage is not None
                assert undisturbed.usage is not None
                assert stream.usage["total_tokens"] == undisturbed.usage["total_tokens"]
