"""HTTPS on both sides: the gateway's certificate, renewed on disk; engines behind private CAs and mutual TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.harness.raw_client import ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.declaration.model import Declaration


def write_pair(authority: trustme.CA, folder: Path, name: str, host: str = "127.0.0.1") -> tuple[str, str]:
    """Issue a certificate and write it with its key."""
    folder.mkdir(parents=True, exist_ok=True)
    issued = authority.issue_cert(host)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return str(certificate), str(key)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def serial_of(port: int, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    peer = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    return str(peer["serialNumber"])


async def test_a_certificate_renewed_on_disk_is_used_without_a_restart(engine: ScriptedEngine, tmp_path: Path) -> None:
    """New connections get the new certificate, open ones live on, and half a renewal keeps the old one."""
    authority = trustme.CA()
    context = trusting(authority)
    certificate, key = write_pair(authority, tmp_path / "tls", "gateway")
    declaration = declare({"p": remote_pool(engine.url)}, gateway={"tls": {"certificate": certificate, "key": key}})
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        first = await serial_of(gateway.port, context)
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, ssl=context)

        Path(certificate).write_bytes(b"half a renewal")
        await asyncio.sleep(1.5)  # one look at the files, at the least: nothing must come of it
        assert await serial_of(gateway.port, context) == first

        write_pair(authority, tmp_path / "tls", "gateway")
        async with asyncio.timeout(15):
            while await serial_of(gateway.port, context) == first:
                await asyncio.sleep(0.1)

        writer.write(post(chat(), gateway.key))
        assert b" 200 OK" in await reader.readuntil(b"\r\n")
        writer.close()


async def test_a_reload_may_name_another_certificate(engine: ScriptedEngine, tmp_path: Path) -> None:
    """Its files are used from the next connection on."""
    authority = trustme.CA()
    context = trusting(authority)

    def declared(name: str) -> Declaration:
        certificate, key = write_pair(authority, tmp_path / "tls", name)
        return declare({"p": remote_pool(engine.url)}, gateway={"tls": {"certificate": certificate, "key": key}})

    async with RunningGateway(tmp_path, declared("first")) as gateway:
        first = await serial_of(gateway.port, context)
        assert (await gateway.configure(declared("second"))).ok
        assert await serial_of(gateway.port, context) != first


async def test_old_tls_versions_are_refused(engine: ScriptedEngine, tmp_path: Path) -> None:
    """TLS 1.2 is the least that is spoken."""
    authority = trustme.CA()
    certificate, key = write_pair(authority, tmp_path / "tls", "gateway")
    declaration = declare({"p": remote_pool(engine.url)}, gateway={"tls": {"certificate": certificate, "key": key}})
    async with RunningGateway(tmp_path, declaration) as gateway:
        context = trusting(authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert await serial_of(gateway.port, context)
        context = trusting(authority)
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await serial_of(gateway.port, context)


class TlsEngine(ScriptedEngine):
    """An engine that serves HTTPS, and demands a client certificate where `clients` is given."""

    def __init__(self, certificate: str, key: str, clients: trustme.CA | None = None) -> None:
        super().__init__()
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        if clients is not None:
            clients.configure_trust(self._context)
            self._context.verify_mode = ssl.CERT_REQUIRED

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


async def test_an_engine_behind_mutual_tls_and_a_bearer_is_served(tmp_path: Path) -> None:
    """Private CA, client certificate and credentials all reach the engine; the caller needs none of them."""
    authority, clients = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    client_certificate, client_key = write_pair(clients, tmp_path, "client", "headrace")
    certificate, key = write_pair(authority, tmp_path, "engine")
    async with TlsEngine(certificate, key, clients) as engine:
        tls = {"ca": str(tmp_path / "ca.pem"), "certificate": client_certificate, "key": client_key}
        credentials = {"bearer": "engine-secret", "headers": {"x-team": "a"}}
        pool = remote_pool(engine.url, tls=tls, credentials=credentials)
        async with RunningGateway(tmp_path / "state", declare({"p": pool})) as gateway:
            await gateway.wait_ready()
            answer = await ask(gateway.port, post(chat(), gateway.key))
            status = str(await gateway.status())
        assert answer.status == 200
        assert engine.seen[0].headers["authorization"] == "Bearer engine-secret"
        assert engine.seen[0].headers["x-team"] == "a"
        assert "engine-secret" not in status + str(answer) + gateway.log_path.read_text()


async def test_an_engine_that_cannot_be_trusted_is_not_used(tmp_path: Path) -> None:
    """A certificate of another CA keeps the endpoint out; the caller hears that nothing is ready."""
    certificate, key = write_pair(trustme.CA(), tmp_path, "engine")
    async with TlsEngine(certificate, key) as engine:
        async with RunningGateway(tmp_path / "state", declare({"p": remote_pool(engine.url)})) as gateway:
            async with asyncio.timeout(30):
                while (await gateway.status()).endpoints[0].state == "unknown":
                    await asyncio.sleep(0.02)
            endpoint = (await gateway.status()).endpoints[0]
            answer = await ask(gateway.port, post(chat(), gateway.key))
    assert endpoint.state == "not-ready"
    assert "certificate" in endpoint.reason
    assert (answer.status, answer.code) == (503, "no_ready_endpoint")
    assert engine.seen == []


@contextmanager
def alerting_engine(certificate: str, key: str, clients: trustme.CA, version: ssl.TLSVersion) -> Iterator[str]:
    """An engine behind mutual TLS that says in an alert what it does not like; asyncio's servers close in silence."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    clients.configure_trust(context)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
    server = QuietServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class QuietServer(HTTPServer):
    def handle_error(self, *_: object) -> None:
        """Failed handshakes are what is tested."""


async def reason_of(folder: Path, url: str, **keys: Any) -> str:
    """What `headrace status` says of an endpoint that cannot be used, once its probes have told."""
    async with RunningGateway(folder, declare({"p": remote_pool(url, **keys)})) as gateway:
        async with asyncio.timeout(30):
            while (endpoint := (await gateway.status()).endpoints[0]).state != "not-ready":
                await asyncio.sleep(0.02)
        answer = await ask(gateway.port, post(chat(), gateway.key))
        assert (answer.status, answer.code) == (503, "no_ready_endpoint")
        assert "tls" not in answer.json["error"]["message"], "callers are not told of the operator's settings"
    return endpoint.reason


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
async def test_the_reason_names_a_client_certificate_that_is_missing_or_wrong(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    """An engine's TLS alert becomes the setting to look at."""
    authority, clients = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate, key = write_pair(authority, tmp_path, "engine")
    wrong_certificate, wrong_key = write_pair(trustme.CA(), tmp_path, "client", "headrace")
    tls = {"ca": str(tmp_path / "ca.pem")}
    with alerting_engine(certificate, key, clients, version) as url:
        missing = await reason_of(tmp_path / "1", url, tls=tls)
        assert "demands a client certificate: pools.p.tls.certificate and pools.p.tls.key" in missing
        wrong = await reason_of(tmp_path / "2", url, tls={**tls, "certificate": wrong_certificate, "key": wrong_key})
        assert "does not accept the client certificate of pools.p.tls.certificate" in wrong


async def test_the_reason_names_a_client_certificate_where_the_engine_only_closes(tmp_path: Path) -> None:
    """uvicorn, under vLLM and SGLang, sends no alert: the reason says what it may be."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate, key = write_pair(authority, tmp_path, "engine")
    async with TlsEngine(certificate, key, trustme.CA()) as engine:
        reason = await reason_of(tmp_path / "1", engine.url, tls={"ca": str(tmp_path / "ca.pem")})
    assert "perhaps it demands a client certificate (pools.p.tls.certificate)" in reason


async def test_the_reason_names_a_wrong_server_name_or_scheme_and_an_unknown_ca(tmp_path: Path) -> None:
    """Each of the usual mistakes is told apart, with its setting."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    ca = str(tmp_path / "ca.pem")
    certificate, key = write_pair(authority, tmp_path, "engine", "engine.example")
    async with TlsEngine(certificate, key) as engine:
        for number, tls in enumerate(({"ca": ca}, {"ca": ca, "server_name": "other.example"})):
            reason = await reason_of(tmp_path / f"name-{number}", engine.url, tls=tls)
            assert "certificate is for another name: the name to expect is pools.p.tls.server_name" in reason
        reason = await reason_of(tmp_path / "ca", engine.url, tls={"server_name": "engine.example"})
        assert "of a CA that is not trusted here: name the CA in pools.p.tls.ca" in reason
        reason = await reason_of(tmp_path / "plain", engine.url.replace("https", "http"))
        assert "as an HTTPS port does" in reason
        named = remote_pool(engine.url, tls={"ca": ca, "server_name": "engine.example"})
        async with RunningGateway(tmp_path / "right", declare({"p": named})) as gateway:
            await gateway.wait_ready()


async def test_an_unusable_certificate_changes_nothing(engine: ScriptedEngine, tmp_path: Path) -> None:
    """A reload that names a missing file is refused by name, and the gateway serves on as before."""
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url)})) as gateway:
        await gateway.wait_ready()
        broken = declare({"p": remote_pool("https://127.0.0.1:1", tls={"ca": str(tmp_path / "none.pem")})})
        reply = await gateway.configure(broken)
        assert not reply.ok
        assert "none.pem" in reply.message
        assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200
        assert (await ask(gateway.port, get("/ready"))).status == 200
