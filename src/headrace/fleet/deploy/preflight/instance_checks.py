"""What `headrace up` needs beside its pools: state folder, addresses, certificates, packages, database."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from headrace.database.connect import open_database
from headrace.database.url import DatabaseError, parse_database_url
from headrace.declaration.model import Declaration
from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.extras import Extra, install_hint, is_installed, missing_text
from headrace.fleet.deploy.ports import check_address, split_address
from headrace.fleet.deploy.predecessors import find_predecessors
from headrace.fleet.deploy.preflight.core.finding import Finding, Level, fail, ok
from headrace.fleet.deploy.state_files import check_socket_length, find_supervisor
from headrace.settings import Settings

MISMATCH = "KEY_VALUES_MISMATCH"
"""OpenSSL's reason where a key belongs to another certificate."""
PUBLISHERS = (EngineKind.VLLM, EngineKind.SGLANG)
"""Engines whose KV events need a package in the gateway."""


def check_instance(declaration: Declaration, settings: Settings, *, is_offline: bool = False) -> Iterator[Finding]:
    """Yield what would stop the start. `is_offline`: the database is not asked."""
    yield _state_folder(settings)
    yield from _addresses(declaration, settings)
    yield from _certificates(declaration)
    yield from _packages(declaration)
    yield from _database(declaration, is_offline=is_offline)


def _state_folder(settings: Settings) -> Finding:
    remedy = "Set HEADRACE_STATE_DIR to a folder that this user can write to."
    try:
        check_socket_length(settings)
    except OperatorError as error:
        return fail("state", error.message, needed="a shorter path", remedy=error.hint or remedy)
    place = _nearest(settings.state_dir / "run")
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return ok("state", f"{settings.state_dir} can be used")
    return fail("state", f"{place} cannot be written", needed=str(settings.state_dir), remedy=remedy)


def _nearest(path: Path) -> Path:
    """What there is of a path: itself, or the nearest folder above it."""
    return next((place for place in (path, *path.absolute().parents) if place.exists()), Path("/"))


def _addresses(declaration: Declaration, settings: Settings) -> Iterator[Finding]:
    gateway, running = declaration.gateway, find_supervisor(settings)
    pids = [worker.process.pid for worker in find_predecessors(settings)]
    urls = () if running is None else (running.inference_url, running.control_url)
    own = {urlsplit(url).port for url in urls}
    for key, listen in (("listen", gateway.listen), ("control", gateway.control)):
        if split_address(listen)[1] in own:
            yield ok(key, f"{listen} is held by the headrace that runs here")
            continue
        try:
            check_address(listen, key=f"gateway.{key}", own_pids=pids)
        except OperatorError as error:
            yield fail(key, error.message, needed="an address to listen on", remedy=error.hint or "")
        else:
            yield ok(key, f"{listen} is free")


def _certificates(declaration: Declaration) -> Iterator[Finding]:
    """Every certificate loads, and each is of its key."""
    tls = declaration.gateway.tls
    pairs: list[tuple[str, str | None, str | None, str | None]] = []
    if tls is not None:
        pairs.append(("gateway.tls", tls.certificate, tls.key, None))
    for name, pool in declaration.pools.items():
        if pool.is_remote and pool.tls.model_fields_set:
            pairs.append((f"pools.{name}.tls", pool.tls.certificate, pool.tls.key, pool.tls.ca))
    for key, certificate, private_key, ca in pairs:
        if reason := _unusable(certificate, private_key, ca):
            yield fail("tls", f"{key}: {reason}", needed="PEM files that belong together", remedy=f"Correct {key}.")
        else:
            yield ok("tls", f"{key} loads")


def _unusable(certificate: str | None, key: str | None, ca: str | None) -> str | None:
    """Why these files cannot be used; None where they can."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        return f"{ca} is no file of PEM certificates: {_said(error)}"
    if certificate is None:
        return None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == MISMATCH:
            return f"{key} is not the key of {certificate}"
        return f"{certificate} with {key} is no PEM certificate with its key: {_said(error)}"
    return None


def _no_password() -> str:
    """A key with a password cannot be used: nobody is there to type it."""
    raise ValueError("the key is encrypted, and nobody is there to type its password")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _packages(declaration: Declaration) -> Iterator[Finding]:
    """Packages that only this declaration needs."""
    needed: list[tuple[str, Extra, Level]] = []
    database = declaration.ledger.database
    if database is not None and not database.startswith("sqlite"):
        needed.append(("ledger.database", Extra.POSTGRES, Level.FAIL))
    if declaration.gateway.sharing.redis is not None:
        needed.append(("gateway.sharing.redis", Extra.REDIS, Level.FAIL))
    events = [
        f"pools.{name}.telemetry.kv_events"
        for name, pool in declaration.pools.items()
        if pool.options.telemetry.kv_events and pool.engine in PUBLISHERS
    ]
    if events:
        needed.append((events[0], Extra.KV_EVENTS, Level.WARN))  # without it the gateway serves, by its own index
    for key, extra, level in needed:
        if is_installed(extra):
            yield ok("package", f"{key} has what it needs (extra {extra.value})")
        else:
            missing = missing_text(key, extra)
            yield Finding(code="package", level=level, seen=missing, needed=extra.value, remedy=install_hint(extra))


def _database(declaration: Declaration, *, is_offline: bool) -> Iterator[Finding]:
    text = declaration.ledger.database
    if text is None:
        return
    try:
        url = parse_database_url(text)
        if url.sqlite_path is not None:
            yield _folder_of(url.sqlite_path)
        elif not is_offline and is_installed(Extra.POSTGRES):
            database = open_database(url)
            try:
                with database.reading():
                    yield ok("database", f"{url.shown} answers")
            finally:
                database.close()
    except DatabaseError as error:
        yield fail("database", error.message, needed="ledger.database", remedy=error.hint or "")


def _folder_of(path: Path) -> Finding:
    place = _nearest(path)
    if os.access(place, os.W_OK) and place.is_dir() is (place != path):
        return ok("database", f"{path} can be written")
    return fail(
        "database", f"{place} cannot be written", needed="ledger.database", remedy="Give this user the right to."
    )
