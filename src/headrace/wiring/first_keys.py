"""The keys of a first start, when there are none: one for inference, one for operators; shown once.

Their clear text waits in run/ (mode 0600) until `headrace up` has shown it. With the built-in declaration on a loopback
address the inference key stays there, so that `make up` can print the same ready-to-paste line again: a convenience
that only this user, on this machine, has.
"""

import os
from pathlib import Path

from headrace.declaration.addresses import is_loopback, parse_listen
from headrace.declaration.load import Loaded
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.settings import Settings
from headrace.tenancy.key_store import KeyStore

DEFAULT_TENANT = "default"


def first_key_file(settings: Settings) -> Path:
    return settings.run_dir / "first-key"


def first_admin_key_file(settings: Settings) -> Path:
    return settings.run_dir / "first-admin-key"


def make_first_keys(store: KeyStore, loaded: Loaded, settings: Settings) -> None:
    """Make one inference key and one admin key, where the store holds none at all."""
    if store.list_keys():
        return
    tenants = loaded.declaration.tenants
    tenant = TenantId(DEFAULT_TENANT if DEFAULT_TENANT in tenants else next(iter(tenants)))
    for scope, path in (
        (Scope.ADMIN, first_admin_key_file(settings)),
        (Scope.INFERENCE, first_key_file(settings)),
    ):
        clear_text, _ = store.create_key(tenant=tenant, scope=scope, name=f"first {scope.value} key")
        _write_secret(path, clear_text)


def take_first_keys(settings: Settings, loaded: Loaded) -> dict[Scope, str]:
    """Return the keys that are to be shown now, and remove those that are shown only once."""
    found: dict[Scope, str] = {}
    for scope, path in (
        (Scope.INFERENCE, first_key_file(settings)),
        (Scope.ADMIN, first_admin_key_file(settings)),
    ):
        try:
            found[scope] = path.read_text().strip()
        except OSError:
            continue
        if scope is Scope.ADMIN or not keeps_first_key(loaded):
            path.unlink(missing_ok=True)
    return found


def keeps_first_key(loaded: Loaded) -> bool:
    """Whether the inference key may be shown again: only the built-in declaration, only on loopback."""
    return loaded.path is None and is_loopback(parse_listen(loaded.declaration.gateway.listen)[0])


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text + "\n")
