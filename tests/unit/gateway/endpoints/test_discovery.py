"""DNS discovery with a resolver whose answers change, engines on several loopback addresses, real connections."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import trustme
from tests.harness.polling import until
from tests.harness.running_gateway import declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole

from headrace.declaration.gateway_plan import EndpointAddress, GatewayPlan, compile_gateway_plan
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.discovery import DnsDiscovery
from headrace.gateway.endpoints.questions import QuestionAnswer
from headrace.gateway.tasks import spawn


class Names:
    """A resolver that answers as the test says; None is a failed look-up."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: tuple[str, ...] | None = addresses
        self.asked = 0

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked += 1
        if self.addresses is None:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self.addresses


def plan_for(url: str, **keys: object) -> GatewayPlan:
    pool = remote_pool(url, discover="dns", discover_interval_s=1, **keys)
    return compile_gateway_plan(declare({"p": pool}), {"p": (EndpointAddress(endpoint="p", url=url),)}, revision=1)


@contextlib.asynccontextmanager
async def discovering(plan: GatewayPlan, names: Names) -> AsyncIterator[EndpointDirectory]:
    loop = asyncio.get_running_loop()
    directory = EndpointDirectory(loop)
    directory.adopt(directory.prepare(plan))
    task = spawn(DnsDiscovery(directory, loop, names).run(), "discovery")
    try:
        yield directory
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for endpoint in directory:
            endpoint.connections.close()


def ips(directory: EndpointDirectory) -> list[str | None]:
    return [endpoint.address.ip for endpoint in directory.of_pool("p")]


async def test_all_addresses_are_endpoints_and_a_vanished_one_finishes_its_work() -> None:
    """Each address is used on its own; one that leaves DNS answers what it has begun and gets nothing more."""
    may_answer = asyncio.Event()

    async def wait(_: ScriptedEngine, __: Seen, writer: asyncio.StreamWriter) -> None:
        await may_answer.wait()
        writer.write(whole(200, completion()))

    names = Names("127.0.0.2", "127.0.0.3")
    async with ScriptedEngine({"wait": wait}, host="127.0.0.2") as first:
        async with ScriptedEngine(host="127.0.0.3", port=first.port) as second:
            async with discovering(plan_for(f"http://engines.internal:{first.port}"), names) as directory:
                await until(lambda: ips(directory) == ["127.0.0.2", "127.0.0.3"])
                answers = [QuestionAnswer(asyncio.get_running_loop(), 1024) for _ in range(2)]
                body = b'{"x":"script:wait"}'
                for endpoint, answer in zip(directory.of_pool("p"), answers, strict=True):
                    head = b"POST / HTTP/1.1\r\ncontent-length: %d\r\n%b\r\n" % (len(body), endpoint.heads.lines)
                    endpoint.connections.send(head, body, answer)
                leaving, staying = directory.of_pool("p")
                await until(lambda: bool(first.seen) and bool(second.seen))

                names.addresses = ("127.0.0.3",)
                await until(lambda: ips(directory) == ["127.0.0.3"])
                assert directory.of_pool("p") == (staying,), "what stays keeps its state and connections"
                may_answer.set()

                assert [(await answer.reply).status for answer in answers] == [200, 200]
                assert first.seen[0].headers["host"] == f"engines.internal:{first.port}"
                await until(lambda: leaving.connections.open_count == 0)


async def test_a_failed_look_up_keeps_the_last_addresses() -> None:
    """DNS that is down takes no engine out; back again, it is followed."""
    names = Names("127.0.0.2")
    async with discovering(plan_for("http://engines.internal:9"), names) as directory:
        await until(lambda: ips(directory) == ["127.0.0.2"])
        names.addresses, asked = None, names.asked
        await until(lambda: names.asked > asked + 1)
        assert ips(directory) == ["127.0.0.2"]
        names.addresses = ("127.0.0.4", "127.0.0.4")
        await until(lambda: ips(directory) == ["127.0.0.4"])


async def test_a_trust_file_that_is_being_replaced_does_not_end_discovery(tmp_path: Path) -> None:
    """Addresses are followed again as soon as the file is whole."""
    trusted = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(trusted))
    content = trusted.read_bytes()
    names = Names("127.0.0.2")
    plan = plan_for("https://engines.internal:9", tls={"ca": str(trusted)})
    async with discovering(plan, names) as directory:
        await until(lambda: ips(directory) == ["127.0.0.2"])
        trusted.write_bytes(b"")
        names.addresses, asked = ("127.0.0.3",), names.asked
        await until(lambda: names.asked > asked + 1)
        assert ips(directory) == ["127.0.0.2"]
        trusted.write_bytes(content)
        await until(lambda: ips(directory) == ["127.0.0.3"])


async def test_the_system_resolver_is_the_default() -> None:
    """Without another resolver, names are looked up as every program does."""
    loop = asyncio.get_running_loop()
    directory = EndpointDirectory(loop)
    directory.adopt(directory.prepare(plan_for("http://localhost:9")))
    task = spawn(DnsDiscovery(directory, loop).run(), "discovery")
    try:
        await until(lambda: "127.0.0.1" in ips(directory))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
