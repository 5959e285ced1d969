"""The gateway's server certificate: loaded once, loaded again when its files change, without a restart."""

import asyncio
import ssl
from pathlib import Path

import structlog

WATCH_S = 1.0
"""How soon a renewed certificate is used. Chosen."""
log = structlog.get_logger("headrace.gateway")


class ServerCertificate:
    """One TLS context whose certificate follows its files. New connections get the new one; open ones live on."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raises: OSError, ssl.SSLError where the files are unreadable or do not fit together."""
        self._certificate = certificate
        self._key = key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.context.load_cert_chain(certificate, key)
        self._stamp = self._read_stamp()

    def follow(self, other: "ServerCertificate") -> None:
        """Use the files of `other`, which has loaded them, from the next connection on. Raises: as `__init__`."""
        self.context.load_cert_chain(other._certificate, other._key)
        self._certificate, self._key, self._stamp = other._certificate, other._key, other._stamp

    async def watch(self) -> None:
        """Follow the files until cancelled. A renewal that does not load keeps the old certificate in use."""
        broken: tuple[int, int, int, int] | None = None
        while True:
            await asyncio.sleep(WATCH_S)
            stamp = self._read_stamp()
            if stamp is None or stamp in (self._stamp, broken):
                continue
            try:
                # Tried apart first: a failed load may leave a context with half of the new pair.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._certificate, self._key)
                self.context.load_cert_chain(self._certificate, self._key)
            except (OSError, ssl.SSLError) as error:
                broken = stamp  # told once; tried again when a file changes
                log.warning(
                    "renewed certificate not usable yet, old one kept", file=self._certificate, error=str(error)
                )
            else:
                self._stamp = stamp
                log.info("certificate renewed", file=self._certificate)

    def _read_stamp(self) -> tuple[int, int, int, int] | None:
        try:
            certificate, key = Path(self._certificate).stat(), Path(self._key).stat()
        except OSError:
            return None
        return certificate.st_mtime_ns, certificate.st_ino, key.st_mtime_ns, key.st_ino
