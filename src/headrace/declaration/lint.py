"""What the types cannot see: references between sections, addresses, sources, files, and settings without effect.

Pure findings on a Declaration; `load.py` gives each its line.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.declaration.addresses import is_loopback, parse_endpoint_url, parse_listen
from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.lint_auto import lint_auto
from headrace.declaration.lint_callers import lint_callers
from headrace.declaration.lint_handover import lint_handover
from headrace.declaration.lint_identity import lint_identity
from headrace.declaration.lint_routing import lint_routing
from headrace.declaration.model import Declaration, Model, Pool
from headrace.declaration.model_source import FileSource, HuggingFaceSource, PypiSource, parse_source
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import KeyPath
from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What lint asks the machine. Tests give their own."""

    has_file: Callable[[str], bool]
    threads: int | None
    """Hardware threads; None where unknown."""


def lint(
    declaration: Declaration, machine: Machine, *, models: frozenset[str] = frozenset(), is_whole: bool = True
) -> Iterator[Finding]:
    """Yield what is wrong or doubtful.

    Not `is_whole`: broken parts of the file were left out of `declaration`; `models` are all names that it declares.
    """
    names = frozenset(declaration.models) | models
    yield from _addresses(declaration)
    yield from _gateway(declaration, machine)
    used = {name for pool in declaration.pools.values() for name in (pool.model, _draft_of(pool))}
    for name, model in declaration.models.items():
        if is_whole and name not in used:
            yield warning(("models", name), "no pool serves this model", "Add a pool with it, or take it out.")
        yield from _model(("models", name), model, machine)
    for name, pool in declaration.pools.items():
        yield from _pool(name, pool, declaration.models.get(pool.model), names, machine)
    yield from _threads(declaration, machine)
    yield from _ports(declaration)
    yield from lint_callers(declaration, names)
    yield from lint_auto(declaration, names)
    yield from lint_identity(declaration)
    yield from lint_routing(declaration)
    yield from lint_handover(declaration)
    yield from _ledger(declaration)


def _addresses(declaration: Declaration) -> Iterator[Finding]:
    gateway = declaration.gateway
    parsed: dict[str, tuple[str, int]] = {}
    for key in ("listen", "control"):
        try:
            parsed[key] = parse_listen(getattr(gateway, key))
        except ValueError as problem:
            yield error(("gateway", key), str(problem), "Write HOST:PORT, such as 127.0.0.1:7070 or [::]:7070.")
    if len(parsed) == 2 and parsed["listen"][1] == parsed["control"][1] != 0:
        hosts = {parsed["listen"][0], parsed["control"][0]}
        if len(hosts) == 1 or hosts & {"0.0.0.0", "::"}:  # noqa: S104 # compared, not bound
            yield error(("gateway", "control"), "is the same address as gateway.listen", "Give it a port of its own.")
    if "listen" in parsed and gateway.tls is None and not is_loopback(parsed["listen"][0]):
        yield warning(
            ("gateway", "listen"),
            "callers beyond this machine send keys and prompts unencrypted",
            "Set gateway.tls, or keep it behind a proxy that ends TLS.",
        )
    if "control" in parsed and not is_loopback(parsed["control"][0]):
        yield warning(
            ("gateway", "control"),
            "operators beyond this machine reach it unencrypted",
            "Keep it on 127.0.0.1, or within a network of its own.",
        )


def _gateway(declaration: Declaration, machine: Machine) -> Iterator[Finding]:
    gateway = declaration.gateway
    if gateway.tls is not None:
        yield from _files(("gateway", "tls"), gateway.tls.certificate, gateway.tls.key, None, machine)
    for number, origin in enumerate(gateway.cors.allow_origins):
        if origin != "*" and not _is_origin(origin):
            yield error(
                ("gateway", "cors", "allow_origins", number),
                "is not an origin",
                'Write scheme and host without a path, such as https://app.example.com, or "*".',
            )
    for number, host in enumerate(gateway.fields.media_hosts):
        if not host or any(char in host for char in "/:@ ?#"):
            path = ("gateway", "fields", "media_hosts", number)
            yield error(path, "is not a host name", "Write the host alone, such as images.example.com.")


def _is_origin(text: str) -> bool:
    scheme, separator, rest = text.partition("://")
    return scheme in ("http", "https") and bool(separator and rest) and not any(char in rest for char in "/?#@ ")


def _files(
    path: KeyPath, certificate: str | None, key: str | None, ca: str | None, machine: Machine
) -> Iterator[Finding]:
    for name, file in (("certificate", certificate), ("key", key), ("ca", ca)):
        if file is not None and not machine.has_file(file):
            yield error((*path, name), "there is no such file on this machine", is_about_this_machine=True)


def _model(path: KeyPath, model: Model, machine: Machine) -> Iterator[Finding]:
    if model.source is None:
        return
    try:
        source = parse_source(model.source)
    except ValueError as problem:
        yield error((*path, "source"), str(problem))
        return
    if isinstance(source, PypiSource) and model.sha256 is None:
        yield error((*path, "sha256"), "is needed for a pypi: source", "Give the SHA-256 of the file in the wheel.")
    if isinstance(source, HuggingFaceSource):
        if source.file is not None and model.sha256 is None:
            yield error((*path, "sha256"), "is needed for a hf: source with a #file", "The Hub shows it at the file.")
        if not source.is_pinned:
            hint = "Give the commit's 40 hex digits."
            yield warning((*path, "source"), "the revision is a name that can move", hint)
    if isinstance(source, FileSource) and not machine.has_file(str(source.path)):
        yield error((*path, "source"), "there is no such file on this machine", is_about_this_machine=True)
    yield from _trust(path, model)


def _trust(path: KeyPath, model: Model) -> Iterator[Finding]:
    """Code that comes with weights runs with the engine's rights: only the very commit that somebody has read."""
    if not model.trust_remote_code:
        return
    source = parse_source(model.source) if model.source is not None else None
    revision = source.revision if isinstance(source, HuggingFaceSource) else None
    if revision is None or model.reviewed_revision != revision:
        yield error(
            (*path, "trust_remote_code"),
            "needs a source hf:ORG/NAME@COMMIT whose code somebody has read",
            "Read the repository's Python files at that commit, then give the commit as reviewed_revision.",
        )


def _draft_of(pool: Pool) -> str | None:
    speculative = pool.options.speculative
    return speculative.model if speculative is not None else None


def _pool(name: str, pool: Pool, model: Model | None, names: frozenset[str], machine: Machine) -> Iterator[Finding]:
    path = ("pools", name)
    if pool.model not in names:
        yield error((*path, "model"), "there is no such model", did_you_mean(pool.model, names))
    draft = _draft_of(pool)
    if draft is not None and draft not in names:
        yield error((*path, "speculative", "model"), "there is no such model", did_you_mean(draft, names))
    yield from _files((*path, "tls"), pool.tls.certificate, pool.tls.key, pool.tls.ca, machine)
    if pool.is_remote:
        yield from _remote_pool(path, pool)
    else:
        yield from _own_pool(path, pool, model)


GATEWAYS_TOO = ("prefix_cache", "structured_output", "disaggregation", "telemetry")
"""Engine options that the gateway goes by as well, wherever the engine runs."""
WITHOUT_KV_EVENTS = frozenset({EngineKind.LLAMACPP, EngineKind.OPENAI})
OWN_ONLY = (
    *(key for key in EngineOptions.model_fields if key not in GATEWAYS_TOO),
    *("threads", "port", "load_timeout_s", "stop_s"),
)
"""Keys that shape a process of our own and mean nothing for an engine that runs elsewhere."""
REMOTE_ONLY = ("discover", "discover_interval_s", "tls", "credentials")
"""Keys about reaching an engine elsewhere."""


def _without_effect(path: KeyPath, pool: Pool, keys: tuple[str, ...], why: str) -> Iterator[Finding]:
    for key in keys:
        if key in pool.model_fields_set:
            yield warning((*path, key), f"has no effect: {why}", "Take it out.")


def _own_pool(path: KeyPath, pool: Pool, model: Model | None) -> Iterator[Finding]:
    if model is not None and model.source is None:
        yield error(
            ("models", pool.model, "source"),
            f"is needed, since headrace runs the pool {path[1]}",
            "Give where the weights come from, or the pool's endpoints.",
        )
    yield from _without_effect(path, pool, REMOTE_ONLY, "headrace runs this pool itself")


def _remote_pool(path: KeyPath, pool: Pool) -> Iterator[Finding]:
    yield from _without_effect(path, pool, OWN_ONLY, "the engines of this pool run elsewhere")
    if pool.options.telemetry.kv_events and pool.engine in WITHOUT_KV_EVENTS:
        yield warning(
            (*path, "telemetry", "kv_events"),
            f"has no effect: {pool.engine.value} does not tell of its KV cache",
            "Take it out.",
        )
    repeated = {url for url, count in Counter(url.rstrip("/") for url in pool.endpoints).items() if count > 1}
    is_any_https = False
    for number, url in enumerate(pool.endpoints):
        place = (*path, "endpoints", number)
        try:
            address = parse_endpoint_url(url)
        except ValueError as problem:
            yield error(place, str(problem), "Write http://HOST:PORT or https://HOST:PORT, with a path if needed.")
            continue
        if url.rstrip("/") in repeated:
            yield error(place, "is listed more than once", "Each endpoint counts once.")
        is_any_https = is_any_https or address.is_tls
        has_credentials = bool(pool.credentials.bearer or pool.credentials.headers)
        if has_credentials and not address.is_tls and not is_loopback(address.host):
            yield warning(place, "the credentials travel unencrypted", "Use https://.")
        if address.path.rstrip("/").endswith("/v1"):
            yield error(place, "ends in /v1, which headrace adds itself", "Take /v1 off.")
    if not is_any_https and pool.tls.model_fields_set:
        yield warning((*path, "tls"), "has no effect: no endpoint is https", "Use https:// URLs, or take it out.")


def _threads(declaration: Declaration, machine: Machine) -> Iterator[Finding]:
    own = {name: pool for name, pool in declaration.pools.items() if not pool.is_remote and pool.threads}
    asked = sum((pool.threads or 0) * pool.replica_count for pool in own.values())
    if machine.threads is not None and asked > machine.threads:
        yield warning(
            ("pools", next(iter(own)), "threads"),
            f"all replicas together ask for {asked} threads, this machine has {machine.threads}",
            "llama.cpp's threads spin: one too many costs a factor of ten. Lower it, or leave it out.",
        )


def _ports(declaration: Declaration) -> Iterator[Finding]:
    """Declared ports of engines, one for each replica, must not meet each other or the gateway's."""
    users: dict[int, str] = {}
    for key in ("listen", "control"):
        try:
            users[parse_listen(getattr(declaration.gateway, key))[1]] = f"gateway.{key}"
        except ValueError:
            continue  # said by _addresses
    for name, pool in declaration.pools.items():
        for number in range(pool.replica_count if pool.port is not None else 0):
            port = (pool.port or 0) + number
            if port in users:
                yield error(("pools", name, "port"), f"needs port {port}, which {users[port]} has", "Choose another.")
            users[port] = f"pools.{name}.port"


DATABASE_SCHEMES = ("sqlite", "sqlite+pysqlite", "postgresql+psycopg", "postgresql", "postgres")


def _ledger(declaration: Declaration) -> Iterator[Finding]:
    ledger = declaration.ledger
    if ledger.database is not None:
        scheme, separator, rest = ledger.database.partition("://")
        is_sqlite = scheme.startswith("sqlite")
        if not separator or scheme not in DATABASE_SCHEMES or (is_sqlite and not rest.strip("/")):
            yield error(
                ("ledger", "database"),
                "is not a database that headrace can use",
                "Write sqlite:////absolute/path.db or postgresql+psycopg://USER:${env:PASSWORD}@HOST/NAME.",
            )
        elif is_sqlite and not rest.startswith("//"):
            hint = "Write four slashes: sqlite:////absolute/path.db."
            yield warning(("ledger", "database"), "is relative to the folder where headrace starts", hint)
    if ledger.journal_bytes < ledger.segment_bytes:
        yield error(
            ("ledger", "journal_bytes"), "is smaller than ledger.segment_bytes", "Raise it, or lower the other."
        )
