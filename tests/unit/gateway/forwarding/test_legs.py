"""One request of a hand-over to one engine, over a real socket: what the hand-over is told of it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.harness.handover_parts import CHAT, HandoverParts, asked, half
from tests.harness.polling import until
from tests.harness.scripted_engine import (
    DONE,
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    chunk_event,
    completion,
    framed,
    usage_event,
    whole,
)

from headrace.domain.request import InferenceRequest
from headrace.engines.handover import LegRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding import legs
from headrace.gateway.forwarding.attempt_request import leg_head
from headrace.gateway.forwarding.legs import Farewell, LegCall, remove_file, weigh_file
from headrace.gateway.handover.core.events import Event, Leg, LegAnswered, LegLost, LegRefused
from headrace.gateway.http.engine_connection import LossReason

REFUSAL = b'{"error":{"message":"boom","code":%d}}'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'


@dataclass
class Owner:
    """Implements `LegOwner`, and its reader: it notes what it hears, and takes decode's answer as a hand-over does."""

    request: InferenceRequest = field(default_factory=asked)
    longest_answer_bytes: int = 1 << 20
    longest_event_bytes: int = 1 << 16
    events: list[Event] = field(default_factory=list)
    refused: list[Leg] = field(default_factory=list)
    spoke: list[bytes] = field(default_factory=list)
    """What had come when decode spoke."""
    went_on: bytes = b""
    ended: list[str] = field(default_factory=list)

    @property
    def reader(self) -> "Owner":
        return self

    def told(self, event: Event) -> None:
        self.events.append(event)

    def was_refused(self, leg: Leg, detail: str) -> None:
        self.refused.append(leg)

    def decode_speaks(self, call: LegCall) -> None:
        call.is_handed = True
        self.spoke.append(call.body)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        raise AssertionError("the hand-over says that itself")

    def answer_bytes(self, data: bytes) -> None:
        self.went_on += data

    def answer_complete(self) -> None:
        self.ended.append("complete")

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self.ended.append(reason.value)

    def crashed(self, bug: Exception) -> None:
        raise bug


@dataclass
class Scene:
    """One engine, and a hand-over's legs to it."""

    engine: ScriptedEngine
    endpoint: Endpoint

    def plays(self, *blocks: bytes, then: str = "close") -> None:
        """What the engine answers. `then`: close its connection, or leave it open, silent."""

        async def play(_engine: ScriptedEngine, _seen: Seen, writer: asyncio.StreamWriter) -> None:
            for block in blocks:
                writer.write(block)
                await writer.drain()
            if then == "hang":
                await asyncio.Event().wait()
            elif then == "close":
                writer.close()

        self.engine.otherwise = play

    def send(self, owner: Owner, leg: Leg, *, keeps_body: bool = True) -> LegCall:
        call = LegCall(owner, leg, self.endpoint, keeps_body)
        body = owner.request.body
        call.send(leg_head(CHAT, self.endpoint, b"x-request-id: r", b"1p", LegRequest(), len(body)), body)
        return call

    async def leg(self, leg: Leg, *, keeps_body: bool = True, owner: Owner | None = None) -> Owner:
        """Send one, and wait until it has ended."""
        owner = owner or Owner()
        self.send(owner, leg, keeps_body=keeps_body)
        await until(lambda: owner.events or owner.ended, what="the end of a leg")
        return owner

    async def is_cut(self) -> None:
        """The gateway has closed its connection before the answer was over."""
        await until(lambda: self.engine.seen and self.engine.seen[-1].was_cut, what="a closed connection")


def stream(*events: bytes) -> tuple[bytes, ...]:
    return (STREAM_HEAD, *(framed(event) for event in events))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with ScriptedEngine() as engine:
        parts = HandoverParts({"p": half("vllm", "prefill", engine.url), "d": half("vllm", "decode", engine.url)})
        yield Scene(engine, parts["d"])
        parts.close()


async def test_prefills_answer_is_told_whole(scene: Scene) -> None:
    """And nothing of it where only its end counts."""
    scene.plays(whole(200, completion()), then="stay")
    assert (await scene.leg(Leg.PREFILL)).events == [LegAnswered(Leg.PREFILL, completion())]
    assert (await scene.leg(Leg.PREFILL, keeps_body=False)).events == [LegAnswered(Leg.PREFILL, b"")]


@pytest.mark.parametrize(("status", "is_callers_fault"), [(400, True), (500, False), (503, False)])
async def test_a_refusal_says_whose_fault_it_is(scene: Scene, status: int, is_callers_fault: bool) -> None:
    """What every engine would refuse is the caller's; its words are kept, also where an answer would not be."""
    body = REFUSAL % status
    scene.plays(whole(status, body), then="stay")
    owner = await scene.leg(Leg.PREFILL, keeps_body=False)
    assert owner.events == [LegRefused(Leg.PREFILL, status, body, is_callers_fault=is_callers_fault)]


async def test_an_engine_that_dies_over_a_leg_is_lost(scene: Scene) -> None:
    """Before its answer and in the middle of it; nobody takes it for one that refused a connection."""
    for blocks in ((), (whole(200, completion())[:-20],)):
        scene.plays(*blocks)
        owner = await scene.leg(Leg.PREFILL)
        assert (owner.events, owner.refused) == ([LegLost(Leg.PREFILL)], [])


async def test_where_nobody_listens_that_is_said_before(scene: Scene) -> None:
    """It is proof that the engine is gone, where a broken connection is none."""
    await scene.engine.stop()
    owner = await scene.leg(Leg.DECODE)
    assert (owner.events, owner.refused) == ([LegLost(Leg.DECODE)], [Leg.DECODE])


async def test_no_leg_goes_out_on_a_connection_that_may_be_stale(scene: Scene) -> None:
    """An engine that closed an idle connection would look dead, and no leg is sent twice."""
    scene.plays(whole(200, completion()), then="stay")
    for count in (1, 2, 3):
        assert len((await scene.leg(Leg.PREFILL)).events) == 1
        assert (scene.engine.connections, len(scene.engine.seen)) == (count, count)


async def test_a_leg_that_is_cancelled_is_closed_and_heard_of_no_more(scene: Scene) -> None:
    """Its engine notices by the connection; so it does where that was still being made."""
    owner = Owner()
    scene.plays(STREAM_HEAD, then="hang")
    call = scene.send(owner, Leg.DECODE)
    await until(lambda: call.status == 200, what="the head of an answer")
    call.cancel()
    await scene.is_cut()
    scene.send(owner, Leg.DECODE).cancel()
    await until(lambda: scene.endpoint.connections.open_count <= 1, what="closed connections")
    assert (owner.events, owner.ended) == ([], [])
    assert len(scene.engine.seen) == 1


# --- decode's answer


async def test_decode_has_not_spoken_before_its_first_token(scene: Scene) -> None:
    """A role and a comment are none; what came until then is kept, and what comes later goes straight on."""
    early = (ROLE, b": still here\n\n")
    later = (chunk_event("hello"), chunk_event(" you"), chunk_event(finish="stop"), usage_event(), DONE)
    owner = Owner()
    scene.plays(*stream(*early), then="hang")
    call = scene.send(owner, Leg.DECODE)
    await until(lambda: call.size_bytes == sum(map(len, early)), what="what comes before a token")
    assert (owner.spoke, owner.events) == ([], [])
    call.cancel()
    scene.plays(*stream(*early, *later), b"0\r\n\r\n", then="stay")
    owner = await scene.leg(Leg.DECODE)
    (spoken,) = owner.spoke
    assert spoken + owner.went_on == b"".join((*early, *later))
    assert chunk_event("hello") in spoken
    assert (owner.ended, owner.events) == (["complete"], [])


async def test_a_stream_that_breaks_after_its_first_token_is_no_affair_of_the_leg(scene: Scene) -> None:
    """Whoever has the answer by then hears of it, as of any stream."""
    scene.plays(*stream(chunk_event("hello")))
    owner = await scene.leg(Leg.DECODE)
    assert (len(owner.spoke), owner.ended, owner.events) == (1, ["broken"], [])


async def test_a_stream_that_says_nothing_is_lost_or_refused_by_what_it_says(scene: Scene) -> None:
    """An error in place of the first token is a refusal, an end without one a loss, an empty answer an answer."""
    error = b'data: {"error":{"message":"KVTransferError","code":500}}\n\n'
    scene.plays(*stream(ROLE, error), then="hang")
    (refused,) = (await scene.leg(Leg.DECODE)).events
    assert isinstance(refused, LegRefused)
    assert (refused.status, b"KVTransferError" in refused.body, refused.is_callers_fault) == (500, True, False)
    await scene.is_cut()
    scene.plays(*stream(ROLE), b"0\r\n\r\n", then="stay")
    assert (await scene.leg(Leg.DECODE)).events == [LegLost(Leg.DECODE)]
    scene.plays(*stream(ROLE, chunk_event(finish="stop"), DONE), b"0\r\n\r\n", then="stay")
    owner = await scene.leg(Leg.DECODE)
    assert (len(owner.spoke), owner.ended, owner.events) == (1, ["complete"], [])


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_whole_answer_speaks_when_it_is_there(scene: Scene, is_stream: bool) -> None:
    """Also to a caller who asked for a stream. One that is an error after all is a refusal; what is no JSON, lost."""
    scene.plays(whole(200, completion()), then="stay")
    owner = await scene.leg(Leg.DECODE, owner=Owner(asked(is_stream=is_stream)))
    assert (owner.spoke, owner.ended, owner.events) == ([completion()], ["complete"], [])
    scene.plays(whole(200, REFUSAL % 500), then="stay")
    (refused,) = (await scene.leg(Leg.DECODE, owner=Owner(asked(is_stream=is_stream)))).events
    assert isinstance(refused, LegRefused)
    assert (refused.status, refused.is_callers_fault) == (500, False)
    scene.plays(whole(200, b"<html>"), then="stay")
    owner = await scene.leg(Leg.DECODE, owner=Owner(asked(is_stream=is_stream)))
    assert owner.events == [LegLost(Leg.DECODE)]


async def test_an_answer_beyond_what_is_held_is_cut(scene: Scene) -> None:
    """A body, or one event that never ends, takes no more memory than is declared; it is lost once."""
    scene.plays(whole(200, completion("x" * 5000)), then="hang")
    owner = await scene.leg(Leg.PREFILL, owner=Owner(longest_answer_bytes=1000))
    assert owner.events == [LegLost(Leg.PREFILL)]
    scene.plays(STREAM_HEAD, framed(b"data: " + b"x" * 5000), then="hang")
    owner = await scene.leg(Leg.DECODE, owner=Owner(longest_event_bytes=1000))
    assert owner.events == [LegLost(Leg.DECODE)]
    await scene.is_cut()


# --- farewells


ABORT = LegRequest(path="/abort_request", fields={"rid": "x"})


async def test_an_engine_is_told_once_to_give_up_what_it_holds(scene: Scene) -> None:
    """What follows is done once it has answered, whatever that says, or where it is gone."""
    done: list[str] = []
    scene.plays(whole(500, b"{}"), then="stay")
    loop = asyncio.get_running_loop()
    Farewell(scene.endpoint, ABORT, loop, lambda: done.append("refused"))
    await until(lambda: done, what="the end of a farewell")
    (seen,) = scene.engine.seen
    assert (seen.path, seen.json) == ("/abort_request", {"rid": "x"})
    await scene.engine.stop()
    Farewell(scene.endpoint, ABORT, loop, lambda: done.append("gone"))
    await until(lambda: len(done) == 2, what="the end of another")
    assert done == ["refused", "gone"]


async def test_an_engine_that_never_answers_a_farewell_is_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed, and what follows is done all the same."""
    monkeypatch.setattr(legs, "FAREWELL_S", 0.2)
    done: list[str] = []
    scene.plays(then="hang")
    Farewell(scene.endpoint, ABORT, asyncio.get_running_loop(), lambda: done.append("given up"))
    await until(lambda: done, what="the end of a farewell")
    await until(lambda: scene.endpoint.connections.open_count == 0, what="a closed connection")
    assert done == ["given up"]


async def test_a_file_is_removed_or_was_not_there(tmp_path: Path) -> None:
    """Whoever removes it twice does no harm; a folder of that name stays."""
    file, folder = tmp_path / "handover-1.bin", tmp_path / "handover-2.bin"
    file.write_bytes(b"kv")
    folder.mkdir()
    loop = asyncio.get_running_loop()
    for path in (file, file, folder):
        remove_file(path, loop)
    await until(lambda: not file.exists(), what="a removed file")
    await loop.shutdown_default_executor()
    assert folder.is_dir()


async def test_a_file_is_weighed_as_far_as_it_can_be_seen(tmp_path: Path) -> None:
    """Its size; nothing of one that is not there."""
    file = tmp_path / "handover-1.bin"
    file.write_bytes(b"kv")
    loop, told = asyncio.get_running_loop(), list[int | None]()
    weigh_file(file, loop, 60.0, told.append)
    await until(lambda: told, what="a size")
    weigh_file(tmp_path / "handover-2.bin", loop, 60.0, told.append)
    await until(lambda: len(told) == 2, what="that it is not there")
    assert told == [2, None]


async def test_a_folder_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    """Its look ends in time, once, whatever comes of it later."""
    file, is_well = tmp_path / "handover-1.bin", threading.Event()
    file.write_bytes(b"kv")
    loop, told = asyncio.get_running_loop(), list[int | None]()
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    hanging = loop.run_in_executor(None, is_well.wait)
    weigh_file(file, loop, 0.01, told.append)
    await until(lambda: told, what="the end of the look")
    is_well.set()
    await hanging
    await loop.run_in_executor(None, file.stat)  # comes after the look
    await loop.shutdown_default_executor()
    assert told == [None]
