"""Plans change while prompts are on their way from one engine to another: roles and slots come and go."""

import asyncio
from pathlib import Path

import httpx
from tests.harness.running_gateway import declare
from tests.harness.simulated_engine import MODEL
from tests.story.gateway.test_handover import CHAT, SLOTS, Scene, body_of, pool_of, scene_of, text_of

from headrace.declaration.model import Declaration
from headrace.engines.simulated.config import DialectKind

LLAMACPP = DialectKind.LLAMACPP
CALLERS = 8


def declared(scene: Scene, *, has_roles: bool = True, slots: int = SLOTS) -> Declaration:
    """The scene's two pools, with other slots or without roles."""
    pools = {
        role: pool_of(LLAMACPP, engine.url, role if has_roles else None, scene.folder, engine.port) for role, engine in
        (("prefill", scene.prefill), ("decode", scene.decode))
    }  # fmt: skip
    for pool in pools.values():
        if has_roles:
            pool["handover"] |= {"slots": slots}
    return declare(pools, models={MODEL: {}})


async def check_reloads(scene: Scene, plans: list[Declaration]) -> None:
    """Under load, whatever is declared: each caller has the right text, and nothing is left."""
    is_over, wrong = False, list[tuple[int, str]]()

    async def call(*, is_stream: bool) -> None:
        while not is_over:
            prompt = scene.prompt()
            expected = await scene.whole.post(CHAT, json=body_of(prompt, stream=False))
            try:
                answer = await scene.client.post(
                    scene.gateway.url + CHAT, json=body_of(prompt, stream=is_stream), timeout=20
                )
            except httpx.TimeoutException:
                wrong.append((0, "no answer"))
                return
            if answer.status_code != 200 or text_of(answer) != text_of(expected):
                wrong.append((answer.status_code, answer.text[-300:]))

    callers = [asyncio.ensure_future(call(is_stream=number % 2 == 0)) for number in range(CALLERS)]
    for plan in plans:
        reply = await scene.gateway.configure(plan)
        assert reply.ok, reply.message
        before = scene.prompts
        async with asyncio.timeout(30):
            while scene.prompts < before + 2 * CALLERS and not wrong:
                await asyncio.sleep(0.01)
    is_over = True
    await asyncio.gather(*callers)
    assert wrong == []
    await scene.gateway.wait_idle()
    async with asyncio.timeout(20):
        while list(scene.folder.glob("*.bin")):
            await asyncio.sleep(0.02)


async def test_roles_and_slots_come_and_go_and_each_caller_is_answered(tmp_path: Path) -> None:
    """Roles are taken away and given back, and the number of slots changes, again and again, under load."""
    async with scene_of(LLAMACPP, tmp_path, has_whole=False) as scene:
        with_roles, without = declared(scene), declared(scene, has_roles=False)
        await check_reloads(scene, [without, with_roles] * 4)
        await check_reloads(scene, [declared(scene, slots=2), with_roles] * 4)
        assert await scene.counted('s_total{end="completed"') > 0
