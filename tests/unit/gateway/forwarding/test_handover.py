"""A request whose prompt one engine computes and another answers: what comes of it when one of the two fails."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.handover_parts import HandoverParts, Sent, asked, half
from tests.harness.polling import until
from tests.harness.scripted_engine import (
    STREAM_HEAD,
    Script,
    ScriptedEngine,
    Seen,
    answer_normally,
    chunk_event,
    completion,
    framed,
    whole,
)

from headrace.domain.errors import ErrorCode
from headrace.domain.usage import TokenUsage
from headrace.gateway.handover.core.slot_book import SlotBook

TEXT = "hello there friend"
HANDED_OVER = TokenUsage(input_tokens=7, output_tokens=3, cached_input_tokens=5)
"""Decode's counts, with what prefill had cached."""
ALONE = TokenUsage(input_tokens=7, output_tokens=3, cached_input_tokens=2)
SHORT_S, LONG_S = 0.2, 120.0
"""Bounds of a step: one that is waited for, and one that is beyond what a test takes."""
ABORT = "/abort_request"


def ticket(name: str) -> bytes:
    """A prefill answer of vLLM."""
    params = {
        "do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "e", "remote_block_ids": [1, 2],
        "remote_host": "h", "remote_port": 5600, "remote_request_id": name,
    }  # fmt: skip
    usage = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 5}}
    return json.dumps({**json.loads(completion("x")), "usage": usage, "kv_transfer_params": params}).encode()


def params_of(seen: Seen) -> dict[str, Any] | None:
    found = seen.json.get("kv_transfer_params")
    assert found is None or isinstance(found, dict)
    return found


def is_leg(seen: Seen) -> bool:
    """It is part of a hand-over, not a request that one engine answers alone."""
    return params_of(seen) is not None or "bootstrap_room" in seen.json or seen.path.startswith("/slots/")


def legs(script: Script) -> Script:
    """Legs are treated so; whole requests, and calls that free something, are answered as by any engine."""

    async def play(engine: ScriptedEngine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        await (script if is_leg(seen) else answer_normally)(engine, seen, writer)

    return play


def answering(*answers: bytes) -> Script:
    """With these by turns, and with the last from then on."""
    left = list(answers)

    async def play(_engine: ScriptedEngine, _seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return play


def refusing(status: int) -> Script:
    return answering(whole(status, b'{"error":{"message":"boom","code":%d}}' % status))


async def die(_engine: ScriptedEngine, _seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def die_speaking(_engine: ScriptedEngine, _seen: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(200, ticket("half"))[:-30])
    await writer.drain()
    writer.transport.abort()


async def hang(_engine: ScriptedEngine, _seen: Seen, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


class Scene(HandoverParts):
    """A prefill engine and a decode engine, connected, their speed known."""

    def __init__(self, prefill: ScriptedEngine, decode: ScriptedEngine, pools: dict[str, Any]) -> None:
        super().__init__(pools)
        self.prefill, self.decode = prefill, decode
        self.learn_speed("prefill", "decode")
        self.connect()

    async def ask(self, **fields: Any) -> Sent:
        """Send a request, to its end."""
        sent = await self.send(asked(tokens=600, **fields)).end()
        await self.check_clean()
        return sent

    async def check_clean(self) -> None:
        """Whatever happened, no claim is left and no request is open at either engine."""
        await until(self.is_idle, what="every claim to be given back")
        await until(lambda: self.prefill.open_requests + self.decode.open_requests == 0, what="requests to end")

    def check_fell_back(self, why: str, sent: Sent) -> None:
        """It was answered whole, once, by one engine alone, and that is all that is charged."""
        assert (sent.error, text_of(sent), sent.account.usage) == (None, TEXT, ALONE)
        assert self.counts.fallbacks == {why: 1}
        assert self.counts.ended == {"fell-back": 1}

    def slots(self, pool: str) -> SlotBook:
        seat = self[pool].seat
        assert seat is not None
        assert seat.slots is not None
        return seat.slots


def text_of(sent: Sent) -> str:
    """What the caller has, streamed or whole."""
    return b"".join(re.findall(rb'"content": ?"([^"]*)"', sent.caller.sent)).decode()


@contextlib.asynccontextmanager
async def scene_of(engine: str, **handover: Any) -> AsyncIterator[Scene]:
    """Until told otherwise, prefill gives a new ticket each time, and decode answers."""
    async with ScriptedEngine() as prefill, ScriptedEngine() as decode:
        both = {key: handover[key] for key in ("slots", "folder") if key in handover}
        wanted = {"min_gain_s": -3600.0, "min_tokens": 1, "timeout_s": LONG_S, **handover}
        pools = {
            "prefill": half(engine, "prefill", prefill.url, **wanted),
            "decode": half(engine, "decode", decode.url, **both),
        }
        scene = Scene(prefill, decode, pools)
        prefill.otherwise = legs(answering(*[whole(200, ticket(f"t{turn}")) for turn in range(9)]))
        yield scene
        scene.close()


# --- tickets (vLLM)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_prompt_is_computed_by_one_engine_and_answered_by_another(is_stream: bool) -> None:
    """Decode gets what prefill said byte for byte; the caller is charged once, as one attempt of decode's."""
    async with scene_of("vllm") as scene:
        sent = await scene.ask(is_stream=is_stream)
        (prefill,), (decode,) = scene.prefill.seen, scene.decode.seen
        assert (prefill.json["max_tokens"], prefill.json["stream"]) == (1, False)
        assert params_of(decode) == json.loads(ticket("t0"))["kv_transfer_params"]
        assert prefill.headers["x-request-id"] == decode.headers["x-request-id"]
        assert (sent.error, text_of(sent), scene.counts.ended) == (None, TEXT, {"completed": 1})
        assert (sent.account.attempts, sent.account.pool) == (1, "decode")
        assert sent.account.usage == HANDED_OVER


@pytest.mark.parametrize(
    ("script", "why", "failures"),
    [
        (refusing(500), "prefill_refused", 1),
        (die, "prefill_lost", 1),
        (die_speaking, "prefill_lost", 1),
        (answering(whole(200, completion())), "prefill_unreadable", 0),
    ],
    ids=["refuses", "dies", "dies over its answer", "gives no ticket"],
)
async def test_where_prefill_fails_decode_computes_the_prompt_itself(script: Script, why: str, failures: int) -> None:
    """At once, and without anything of the hand-over in what it is sent; blamed is who broke or refused."""
    async with scene_of("vllm") as scene:
        scene.prefill.otherwise = legs(script)
        scene.check_fell_back(why, await scene.ask())
        assert [params_of(seen) for seen in scene.decode.seen] == [None]
        assert (scene["prefill"].failures, scene["decode"].failures) == (failures, 0)


async def test_prefill_that_hangs_is_late_and_closed() -> None:
    """Nobody waits for it longer than is declared, and it is told by its connection."""
    async with scene_of("vllm", timeout_s=SHORT_S) as scene:
        scene.prefill.otherwise = legs(hang)
        scene.check_fell_back("prefill_late", await scene.ask())
        assert scene.prefill.seen[0].was_cut


async def test_prefill_that_is_known_to_hang_is_late_whatever_it_was_given() -> None:
    """Its probes go unanswered: that is looked at while it is waited for."""
    async with scene_of("vllm") as scene:
        scene.prefill.otherwise = legs(hang)
        sent = scene.send(asked(tokens=600))
        await until(lambda: scene.prefill.seen, what="the prefill leg")
        scene["prefill"].is_silent = True
        await sent.end()
        await scene.check_clean()
        scene.check_fell_back("prefill_late", sent)


async def test_a_dead_prefill_engine_is_out_at_once() -> None:
    """A refused connection is proof: nothing more is handed over until a probe finds it back."""
    async with scene_of("vllm") as scene:
        await scene.prefill.stop()
        scene.check_fell_back("prefill_lost", await scene.ask())
        assert not scene["prefill"].is_usable
        assert text_of(await scene.ask()) == TEXT
        assert scene.counts.decisions == {"gain": 1, "no_pair": 1}


@pytest.mark.parametrize(
    ("script", "why"),
    [(refusing(500), "decode_refused"), (refusing(400), "decode_refused"), (die, "decode_lost")],
    ids=["refuses", "finds the request wrong", "dies"],
)
async def test_where_decode_fails_prefill_answers_alone(script: Script, why: str) -> None:
    """The ticket is spent and lost with it: nobody is sent it again."""
    async with scene_of("vllm") as scene:
        scene.decode.otherwise = legs(script)
        scene.check_fell_back(why, await scene.ask())
        assert [is_leg(seen) for seen in scene.prefill.seen] == [True, False]
        assert len(scene.decode.seen) == 1
        assert (scene["prefill"].failures, scene["decode"].failures) == (0, 1)


async def test_decode_that_hangs_before_its_first_token_is_late() -> None:
    """Also where it has shown a head and a role."""
    async with scene_of("vllm", timeout_s=SHORT_S) as scene:
        role = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'

        async def say_little(engine: ScriptedEngine, seen: Seen, writer: asyncio.StreamWriter) -> None:
            writer.write(STREAM_HEAD + framed(role))
            await writer.drain()
            await hang(engine, seen, writer)

        scene.decode.otherwise = legs(say_little)
        scene.check_fell_back("decode_late", await scene.ask())
        assert scene.decode.seen[0].was_cut


async def test_decode_that_dies_after_its_first_token_ends_the_stream_in_band() -> None:
    """The caller has a part: nothing is computed again beside it, and the end comes once, as an error."""

    async def speak_and_die(_engine: ScriptedEngine, _seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk_event("hello")))
        await writer.drain()
        await asyncio.sleep(0)
        writer.close()

    async with scene_of("vllm") as scene:
        scene.decode.otherwise = legs(speak_and_die)
        sent = await scene.ask()
        assert sent.error is not None
        assert (sent.error.code, text_of(sent)) == (ErrorCode.STREAM_BROKEN, "hello")
        assert (scene.counts.ended, scene.counts.fallbacks) == ({"broken": 1}, {})
        assert (len(scene.prefill.seen), len(scene.decode.seen)) == (1, 1)
        assert scene["decode"].failures == 1


async def test_a_ticket_that_was_used_is_never_sent_again() -> None:
    """An engine that repeats itself would let decode answer with another prompt's text."""
    async with scene_of("vllm") as scene:
        scene.prefill.otherwise = legs(answering(whole(200, ticket("same"))))
        sent = [await scene.ask() for _ in range(3)]
        assert [text_of(one) for one in sent] == [TEXT] * 3
        assert [one.account.usage for one in sent] == [HANDED_OVER, ALONE, ALONE]
        assert [params_of(seen) is None for seen in scene.decode.seen] == [False, True, True]
        assert scene.counts.fallbacks == {"ticket_spent": 2}
        assert len(scene.prefill.seen) == 3


async def test_what_prefill_finds_wrong_is_told_to_the_caller() -> None:
    """Every engine would: nobody else is asked, and no engine is blamed."""
    async with scene_of("vllm") as scene:
        scene.prefill.otherwise = legs(refusing(400))
        sent = await scene.ask()
        assert sent.error is not None
        assert (sent.error.code, sent.error.message) == (ErrorCode.INVALID_REQUEST, "boom")
        assert (scene.counts.ended, len(scene.decode.seen)) == ({"passed-on": 1}, 0)
        assert (scene["prefill"].failures, scene["decode"].failures) == (0, 0)


@pytest.mark.parametrize("waits_at", ["prefill", "decode"])
async def test_a_caller_who_leaves_is_waited_for_by_nobody(waits_at: str) -> None:
    """Whichever engine works for it is told, and nothing falls back."""
    async with scene_of("vllm") as scene:
        engine = scene.prefill if waits_at == "prefill" else scene.decode
        engine.otherwise = legs(hang)
        sent = scene.send(asked(tokens=600))
        await until(lambda: engine.seen, what="a leg")
        sent.delivery.caller_left()
        await scene.check_clean()
        assert engine.seen[-1].was_cut
        assert sent.error is not None
        assert sent.error.code is ErrorCode.CALLER_DISCONNECTED
        assert (scene.counts.ended, scene.counts.fallbacks) == ({"caller-left": 1}, {})
        assert (scene["prefill"].failures, scene["decode"].failures) == (0, 0)


async def test_a_prompt_with_nothing_left_to_say_is_answered_by_prefill() -> None:
    """TensorRT-LLM: a context request that finished is the whole answer, streamed to whoever asked for a stream."""
    async with scene_of("tensorrt-llm") as scene:
        scene.prefill.otherwise = answering(whole(200, completion()))
        sent = await scene.ask()
        assert (sent.error, text_of(sent)) == (None, TEXT)
        assert b"data: [DONE]" in sent.caller.sent
        assert (scene.counts.ended, len(scene.decode.seen)) == ({"completed": 1}, 0)


# --- rooms (SGLang)


def rooms_of(engine: ScriptedEngine) -> list[object]:
    return [seen.json["bootstrap_room"] for seen in engine.seen if "bootstrap_room" in seen.json]


def ids_of(engine: ScriptedEngine, path: str) -> list[object]:
    return [seen.json["rid"] for seen in engine.seen if seen.path == path]


async def test_what_the_other_engine_holds_is_freed_where_one_dies() -> None:
    """Its leg is closed and aborted by its id; each attempt has a room of its own."""
    async with scene_of("sglang") as scene:
        scene.prefill.otherwise, scene.decode.otherwise = legs(die), legs(hang)
        sent = await scene.ask()
        assert sent.error is not None
        assert sent.error.code is ErrorCode.CONNECT_FAILED
        await until(lambda: ids_of(scene.decode, ABORT), what="an abort")
        cut = [seen for seen in scene.decode.seen if is_leg(seen)]
        assert cut
        assert all(seen.was_cut for seen in cut)
        assert set(ids_of(scene.decode, ABORT)) == {seen.json["rid"] for seen in cut}
        assert len(set(rooms_of(scene.prefill))) == len(rooms_of(scene.prefill))
        assert not ids_of(scene.prefill, ABORT)


async def test_one_request_blames_an_engine_once() -> None:
    """One that no engine survives or accepts ejects nobody, however often it is tried."""
    async with scene_of("sglang") as scene:
        scene.prefill.otherwise, scene.decode.otherwise = legs(refusing(500)), legs(hang)
        sent = await scene.ask()
        assert sent.error is not None
        assert sent.error.code is ErrorCode.ENGINE_REFUSED
        assert len(set(rooms_of(scene.prefill))) == len(rooms_of(scene.prefill)) == 3
        assert (scene["prefill"].failures, scene["decode"].failures) == (1, 0)
        assert scene["prefill"].is_usable


@pytest.mark.parametrize("broken", ["p0", "d0"])
async def test_the_next_attempt_goes_to_other_engines(broken: str) -> None:
    """One engine that refuses everything costs one attempt, however many others it could be paired with."""
    names = ("p0", "p1", "p2", "p3", "d0", "d1", "d2", "d3")
    async with contextlib.AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in names}
        engines[broken].otherwise = legs(refusing(500))
        wanted = {"min_gain_s": -3600.0, "min_tokens": 1, "timeout_s": LONG_S}
        parts = HandoverParts(
            {
                name: half("sglang", "prefill" if name[0] == "p" else "decode", engine.url, **wanted)
                for name, engine in engines.items()
            }
        )
        parts.learn_speed(*names)
        parts.connect()
        sent = await parts.send(asked(tokens=600)).end()
        assert (sent.error, text_of(sent), sent.account.attempts) == (None, TEXT, 2)
        assert len(rooms_of(engines[broken])) == 1
        parts.close()


# --- slots (llama.cpp)


def slots_served(saved: int = 7, restored: int = 7, *, folder: Path | None = None, said_bytes: int = 9) -> Script:
    """An engine with slots, that saves and restores so many tokens of the prompt's 7; in `folder` with a file of 9
    bytes, of which it says `said_bytes`."""

    async def play(engine: ScriptedEngine, seen: Seen, writer: asyncio.StreamWriter) -> None:
        if "action=" not in seen.path:
            await answer_normally(engine, seen, writer)
            return
        counts = {"n_saved": saved, "n_restored": restored}
        if folder is not None and seen.path.endswith("save"):
            (folder / str(seen.json["filename"])).write_bytes(b"KV of 9 b")
            counts["n_written"] = said_bytes
        writer.write(whole(200, json.dumps(counts).encode()))
        await writer.drain()

    return play


def actions(engine: ScriptedEngine) -> list[str]:
    return [seen.path.partition("action=")[2] or "answer" for seen in engine.seen]


@contextlib.asynccontextmanager
async def slots_of(tmp_path: Path, **handover: Any) -> AsyncIterator[Scene]:
    async with scene_of("llamacpp", slots=1, folder=str(tmp_path), **handover) as scene:
        scene.prefill.otherwise = scene.decode.otherwise = slots_served()
        yield scene


async def test_slots_and_the_file_are_given_back_when_all_went_well(tmp_path: Path) -> None:
    """They keep what they have for whoever comes with the same prompt."""
    async with slots_of(tmp_path) as scene:
        sent = await scene.ask()
        assert (sent.error, text_of(sent), sent.account.attempts) == (None, TEXT, 1)
        assert (actions(scene.prefill), actions(scene.decode)) == (["answer", "save"], ["restore", "answer"])
        assert (scene.slots("prefill").idle, scene.slots("decode").idle) == (1, 1)


async def test_a_file_that_is_whole_is_restored(tmp_path: Path) -> None:
    """It has the bytes that the engine says it wrote, or cannot be seen from here, as on another host."""
    async with slots_of(tmp_path) as scene:
        for folder in (tmp_path, tmp_path.with_name("elsewhere")):
            folder.mkdir(exist_ok=True)
            scene.prefill.otherwise = slots_served(folder=folder)
            sent = await scene.ask()
            assert (sent.error, text_of(sent)) == (None, TEXT)
        assert scene.counts.ended == {"completed": 2}
        assert actions(scene.decode) == ["restore", "answer"] * 2
        await until(lambda: not list(tmp_path.iterdir()), what="a removed file")


async def test_a_torn_file_never_reaches_decode(tmp_path: Path) -> None:
    """The disk is full: the prompt is computed again, the file is gone, and the reason is counted."""
    async with slots_of(tmp_path) as scene:
        scene.prefill.otherwise = slots_served(folder=tmp_path, said_bytes=18)
        scene.check_fell_back("file_torn", await scene.ask())
        assert "restore" not in actions(scene.decode)
        await until(lambda: not list(tmp_path.iterdir()), what="a removed file")
        assert (scene.slots("prefill").idle, scene.slots("decode").idle) == (1, 1)


async def test_kv_that_came_short_is_erased_where_it_is(tmp_path: Path) -> None:
    """What was restored is somebody else's: it is erased, its slot given back, and the prompt computed again."""
    async with slots_of(tmp_path) as scene:
        scene.decode.otherwise = slots_served(restored=6)
        scene.check_fell_back("transfer_short", await scene.ask())
        await until(lambda: "erase" in actions(scene.decode), what="an erased slot")
        assert (scene.slots("prefill").idle, scene.slots("decode").idle) == (1, 1)


async def test_a_slot_of_decode_is_waited_for(tmp_path: Path) -> None:
    """As long as a step may be late: then the request goes to one engine."""
    async with slots_of(tmp_path) as scene:
        slot = scene.slots("decode").try_claim()
        assert slot is not None
        sent = scene.send(asked(tokens=600))
        await until(lambda: actions(scene.prefill) == ["answer", "save"], what="a saved slot")
        assert not scene.decode.seen
        scene.slots("decode").free(slot)
        await sent.end()
        assert (sent.error, text_of(sent), scene.counts.ended) == (None, TEXT, {"completed": 1})
    async with slots_of(tmp_path, timeout_s=SHORT_S) as scene:
        assert scene.slots("decode").try_claim() is not None
        scene.check_fell_back("decode_unavailable", await scene.ask())
        assert not scene.decode.seen
        assert scene.slots("prefill").idle == 1


async def test_a_caller_who_leaves_while_a_slot_is_waited_for_takes_none(tmp_path: Path) -> None:
    """Nobody has it then, and the file is removed."""
    async with slots_of(tmp_path) as scene:
        slot = scene.slots("decode").try_claim()
        assert slot is not None
        sent = scene.send(asked(tokens=600))
        await until(lambda: actions(scene.prefill) == ["answer", "save"], what="a saved slot")
        sent.delivery.caller_left()
        scene.slots("decode").free(slot)
        await scene.check_clean()
        assert scene.counts.ended == {"caller-left": 1}
        assert (scene.slots("prefill").idle, scene.slots("decode").idle) == (1, 1)


async def test_where_prefill_has_no_slot_the_request_goes_whole_at_once(tmp_path: Path) -> None:
    """One that is not claimed is waited for by nobody."""
    async with slots_of(tmp_path) as scene:
        assert scene.slots("prefill").try_claim() is not None
        sent = await scene.ask()
        assert (sent.error, text_of(sent), sent.account.usage) == (None, TEXT, ALONE)
        assert (actions(scene.prefill), actions(scene.decode)) == ([], ["answer"])
