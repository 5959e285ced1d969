"""An OIDC issuer on a real socket: publishes keys and rotates them, goes down, answers slowly, signs tokens."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OKPKey, RSAKey

SigningKey = RSAKey | ECKey | OKPKey


def rsa_key(kid: str, bits: int = 2048) -> RSAKey:
    return RSAKey.generate_key(bits, {"kid": kid, "use": "sig"})


class IdentityProvider:
    """`async with IdentityProvider() as provider`; `provider.url` is its issuer."""

    def __init__(self) -> None:
        self.keys: list[SigningKey] = [rsa_key("first")]
        self.asked: list[str] = []
        """Paths of all requests so far."""
        self.delay_s = 0.0
        self.status = 200
        self.body: bytes | None = None
        """Instead of the JWKS document."""
        self.claimed_issuer: str | None = None
        """Instead of its own URL, in the discovery document."""
        self._server: asyncio.Server | None = None
        self._port = 0
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def section(self, **more: Any) -> dict[str, Any]:
        """`identity.oidc.<name>` of a declaration that believes this provider."""
        return {"issuer": self.url, "audience": ["headrace"], "tenant": {"claim": "team"}, **more}

    def token(self, *, key: SigningKey | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token signed by the newest key, good for an hour; a claim of None is left out."""
        signing = key or self.keys[-1]
        algorithm = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[signing.key_type]
        now_at = int(datetime.now(tz=UTC).timestamp())
        usual = {"iss": self.url, "aud": "headrace", "sub": "ada", "team": "default", "exp": now_at + 3600}
        said = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        protected = {"alg": algorithm, "kid": signing.kid, **(header or {})}
        protected = {name: value for name, value in protected.items() if value is not None}
        return jws.serialize_compact(protected, json.dumps(said), signing, [protected["alg"]])

    def rotate(self, kid: str) -> None:
        """Only a fresh key signs and is published from now on."""
        self.keys = [rsa_key(kid)]

    async def __aenter__(self) -> "IdentityProvider":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, until started again on the same port."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._answer_one(reader, writer)
        finally:
            self._serving.discard(task)
            writer.transport.abort() if self._server is None else writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.asked.append(path)
            await asyncio.sleep(self.delay_s)
            body = self._answer(path)
            writer.write(
                b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                % (self.status if body else 404, len(body), body)
            )
            await writer.drain()

    def _answer(self, path: str) -> bytes:
        if path == "/.well-known/openid-configuration":
            return json.dumps({"issuer": self.claimed_issuer or self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        if path == "/keys":
            document = {"keys": [key.as_dict(private=False) for key in self.keys]}
            return self.body if self.body is not None else json.dumps(document).encode()
        return b""
