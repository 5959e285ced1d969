"""The KV cache events of the real engines, switched on by our own launch line, as a gateway reads them."""

import time
from pathlib import Path

import pytest
from tests.contract.checks import Stand, standing, until
from tests.harness.launch_specs import make_spec
from tests.harness.ports import free_port
from tests.real.figures import FIGURES
from tests.real.serving import RealEngine

from headrace.domain.endpoint import EngineKind

pytestmark = pytest.mark.timeout(1500)

FLAG = "--kv-events-config"
LONG = "A beginning of many words that fills some blocks of every engine's cache. " * 12
HEARD_S = 60.0


def our_flags(engine: RealEngine) -> tuple[str, ...]:
    """What headrace puts on the command line of an engine on this port of 127.0.0.1."""
    argv = engine.driver.launch(make_spec({"telemetry": {"kv_events": True}}, port=engine.port)).argv
    place = argv.index(FLAG)
    return argv[place], argv[place + 1]


@pytest.fixture
def telling(real_engine: RealEngine) -> RealEngine:
    """The engine with events, on a port whose derived ones are ports too."""
    real_engine.end()
    before = real_engine.port
    while real_engine.port >= 45_000:
        real_engine.port = free_port()
    if real_engine.port != before:
        real_engine.url = f"http://127.0.0.1:{real_engine.port}"
    real_engine.extra_args = our_flags(real_engine)
    real_engine.launch()
    FIGURES.add("start_s", real_engine.wait_until_ready())
    return real_engine


async def series(stand: Stand, name: str, *labels: str) -> float | None:
    page = await stand.gateway.metrics()
    for line in page.splitlines():
        if line.startswith(f"{name}{{") and all(label in line for label in labels):
            return float(line.rsplit(" ", 1)[1])
    return None


async def test_what_the_engine_stores_is_known(telling: RealEngine, tmp_path: Path) -> None:
    """A gateway that comes after the first prompts asks for what it missed; then the tokens held are those that were
    sent, in whole blocks; a flush of SGLang's cache is heard of.
    """
    driver, asked = telling.driver, {"max_tokens": 4}
    async with standing(telling, tmp_path / "first") as stand:
        await stand.ask(messages=[{"role": "user", "content": f"before anybody listened {LONG}"}], **asked)
    async with standing(telling, tmp_path / "second", pool_keys={"telemetry": {"kv_events": True}}) as stand:
        tokens = 0
        begun_mono_s = time.monotonic()

        async def has_heard() -> bool:
            nonlocal tokens
            answer = await stand.ask(messages=[{"role": "user", "content": f"{tokens} {LONG}"}], **asked)
            assert answer.status_code == 200, answer.text
            tokens += answer.json()["usage"]["prompt_tokens"]
            return (await series(stand, "headrace_kv_events_stored_blocks_total") or 0) > 0

        await until(has_heard, HEARD_S, f"events of {driver.kind} arrive")
        FIGURES.add("first_event_s", time.monotonic() - begun_mono_s)
        messages = "headrace_kv_events_messages_total"
        assert await series(stand, messages, 'result="missed"') == 0
        assert await series(stand, messages, 'result="unreadable"') == 0
        assert (await series(stand, messages, 'result="replayed"') or 0) >= 1, "what was stored before"

        async def holds_all() -> bool:
            held = await series(stand, "headrace_kv_events_held_tokens", 'tier="device"')
            return held is not None and held > 0.3 * tokens

        await until(holds_all, HEARD_S, "what was sent is held")
        held = await series(stand, "headrace_kv_events_held_tokens", 'tier="device"')
        assert held is not None
        assert held < 3 * tokens + 4000
        if telling.kind is EngineKind.SGLANG:
            cleared = 'cause="cleared"'
            before = await series(stand, "headrace_kv_events_emptied_total", cleared) or 0
            assert (await stand.client.post(f"{telling.url}/flush_cache")).status_code == 200

            async def is_empty() -> bool:
                """SGLang tells of a flush with its next batch."""
                await stand.ask(messages=[{"role": "user", "content": "hello"}], **asked)
                return (await series(stand, "headrace_kv_events_emptied_total", cleared) or 0) > before

            await until(is_empty, HEARD_S, "the flush is heard of")
            left = await series(stand, "headrace_kv_events_held_tokens", 'tier="device"')
            assert left is not None
            assert left < held
    telling.end()
    telling.extra_args = ()
