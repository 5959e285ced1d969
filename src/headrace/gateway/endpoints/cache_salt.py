"""Salts that keep each tenant's prompts in a part of an engine's prefix cache that no other tenant's prompts can hit.

A salt is an HMAC of the tenant's name with this instance's secret, so that nobody who reaches an engine around headrace
can make another tenant's. All workers of an instance share the secret, and it outlives them.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace.whole_file import write_whole

Salter = Callable[[str], str]
"""Given a tenant, its salt."""
FILE = "cache-salt.secret"
SECRET_BYTES = 32


class CacheSalt:
    """A `Salter` whose secret is in the state folder, made when it is first needed."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE
        self._secret = b""
        self._salts: dict[str, str] = {}

    def __call__(self, tenant: str) -> str:
        """Return the salt of `tenant`. Raises: OSError where the secret can be neither read nor made."""
        salt = self._salts.get(tenant)
        if salt is None:
            self._secret = self._secret or load_secret(self._path)
            salt = self._salts[tenant] = hmac.new(self._secret, tenant.encode(), hashlib.sha256).hexdigest()
        return salt


def load_secret(path: Path) -> bytes:
    """Read the secret, or make it; of workers that start at once, all end up with the same one."""
    if not path.exists():
        with suppress(FileExistsError):
            write_whole(path, secrets.token_bytes(SECRET_BYTES), keeps_other=True)
    return path.read_bytes()
