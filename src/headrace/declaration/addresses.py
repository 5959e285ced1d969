"""HOST:PORT and endpoint URLs of the declaration, parsed in one place."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\.?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUrl:
    """A remote endpoint's address."""

    is_tls: bool
    host: str
    port: int
    path: str
    """Prefix before the API's own paths, without a trailing slash; may be empty."""


def parse_listen(text: str) -> tuple[str, int]:
    """Read HOST:PORT; IPv6 in brackets. Port 0 takes any free one.

    Raises: ValueError saying what is wrong.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host:
        raise ValueError("is not HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host, 6):
            raise ValueError("has no valid IPv6 address in its brackets")
    elif ":" in host or not _HOST.fullmatch(host):
        raise ValueError("has no valid host")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("has no valid port (0 to 65535)")
    return host, int(port)


def parse_endpoint_url(text: str) -> EndpointUrl:
    """Read an endpoint's URL.

    Raises: ValueError saying what is wrong; the message never quotes the URL, which may hold a password.
    """
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ValueError("has blanks or control characters in it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError("is not a valid URL") from error
    if parts.scheme not in ("http", "https"):
        raise ValueError("is not an http:// or https:// URL")
    if "@" in parts.netloc:
        raise ValueError("has a login in it; use the pool's credentials instead")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise ValueError("has a query or a fragment, which no endpoint has")
    host = parts.hostname or ""
    if not (_HOST.fullmatch(host) or _is_ip(host, 6)):
        raise ValueError("has no valid host")
    if port == 0:
        raise ValueError("has port 0")
    is_tls = parts.scheme == "https"
    return EndpointUrl(
        is_tls=is_tls,
        host=host,
        port=port if port is not None else (443 if is_tls else 80),
        path=parts.path.rstrip("/"),
    )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False
