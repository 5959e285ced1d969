"""The gateway's own headrace.yaml: the declaration as it is, with the rendered pools as endpoints that run elsewhere.

Secrets stay references; files that it names are mounted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, cast

from headrace.declaration.fields import has_mark
from headrace.declaration.lint import GATEWAYS_TOO, OWN_ONLY
from headrace.declaration.model import Declaration
from headrace.declaration.problem import KeyPath, dotted
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.model import SecretFile
from headrace.fleet.deploy.render.core.yaml_text import yaml_text

ENV_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
FILE_REFERENCE = re.compile(r"\$\{file:([^}]+)\}")
RENDER_ONLY = ("container", "placement", "kubernetes")
NOT_THE_GATEWAYS = ("replicas", *RENDER_ONLY, "per_engine", "endpoints", *OWN_ONLY)
"""Keys of a rendered pool that say how its engine is started."""
MODEL_KEYS = ("source", "sha256", "requantize", "chat_template", "weight_bytes", "trust_remote_code")
MODEL_KEYS_DROPPED = (*MODEL_KEYS, "reviewed_revision", "per_engine")
"""Keys of a model that say what its engine is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the gateway reaches the replicas of one rendered pool."""

    endpoints: tuple[str, ...]
    by_dns: bool = False
    """One name that stands for every replica."""
    engine: EngineKind | None = None
    """As which it is spoken to, where that is not the pool's engine."""
    served_model: str | None = None
    """What it calls the model, where that is not as declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeclaration:
    """The text and what it needs around it."""

    text: str
    secret_variables: tuple[str, ...]
    secret_files: tuple[SecretFile, ...]


@dataclass(slots=True, kw_only=True)
class _Collector:
    """Goes through the values: collects secrets, and puts mounted paths in place of the machine's."""

    folder: str
    secret_dir: PurePosixPath
    """Where files with secrets are mounted."""
    variables: dict[str, None] = field(default_factory=dict[str, None])
    files: dict[str, SecretFile] = field(default_factory=dict[str, SecretFile])

    def plain(self, value: object, path: KeyPath) -> object:
        """Return `value` as YAML's own types."""
        if isinstance(value, Mapping):
            entries = cast("Mapping[object, object]", value)
            return {_word(key): self.plain(child, (*path, str(_word(key)))) for key, child in entries.items()}
        if isinstance(value, (list, tuple)):
            items = cast("Sequence[object]", value)
            return [self.plain(child, (*path, number)) for number, child in enumerate(items)]
        if isinstance(value, str) and not isinstance(value, Enum):
            return self._text(value, path)
        return _word(value)

    def _text(self, text: str, path: KeyPath) -> str:
        if has_mark(path, "x-path"):
            return str(self._mounted(text, path))
        if has_mark(path, "x-secret") and "${" in text:
            self.variables |= dict.fromkeys(ENV_REFERENCE.findall(text))
            return FILE_REFERENCE.sub(lambda found: f"${{file:{self._mounted(found[1], path)}}}", text)
        return text.replace("${", "$${")

    def _mounted(self, text: str, path: KeyPath) -> PurePosixPath:
        host = PurePosixPath(self.folder) / text
        name = _slug(dotted(path))
        self.files[name] = SecretFile(name=name, origin=dotted(path), host_path=str(host), path=self.secret_dir / name)
        return self.files[name].path


def gateway_declaration(
    declaration: Declaration,
    reaches: Mapping[str, Reach],
    *,
    folder: str,
    listen: str,
    control: str,
    secret_dir: PurePosixPath,
    database: str | None = None,
    redis: str | None = None,
) -> GatewayDeclaration:
    """Write the gateway's headrace.yaml.

    `reaches` has an entry for every pool that is rendered. `folder` is the declaration's, from which relative paths
    count. `database` and `redis` are used where none is declared.
    """
    tree = declaration.model_dump(exclude_unset=True)
    tree.pop("deployment", None)
    gateway: dict[str, Any] = {**tree.get("gateway", {}), "listen": listen, "control": control}
    if redis is not None and declaration.gateway.sharing.redis is None:
        gateway["sharing"] = {**gateway.get("sharing", {}), "redis": redis}
    tree["gateway"] = gateway
    for model in tree["models"].values():
        for key in MODEL_KEYS_DROPPED:
            model.pop(key, None)
    pools = {name: _pool(declaration, name, section, reaches) for name, section in tree["pools"].items()}
    tree["pools"] = {name: section for name, section in pools.items() if section is not None}
    if database is not None and declaration.ledger.database is None:
        tree["ledger"] = {**tree.get("ledger", {}), "database": database}
    collector = _Collector(folder=folder, secret_dir=secret_dir)
    ordered = {"version": 1, **{key: tree[key] for key in Declaration.model_fields if key in tree}}
    text = yaml_text(collector.plain(ordered, ()), head=HEAD)
    return GatewayDeclaration(
        text=text, secret_variables=tuple(sorted(collector.variables)), secret_files=tuple(collector.files.values())
    )


HEAD = ("The gateway's declaration, made by `headrace render`: the engines of its pools run elsewhere.",)


def _pool(
    declaration: Declaration, name: str, section: dict[str, object], reaches: Mapping[str, Reach]
) -> dict[str, object] | None:
    pool = declaration.pools[name]
    if pool.is_remote:
        return {key: value for key, value in section.items() if key not in RENDER_ONLY}
    reach = reaches.get(name)
    if reach is None:
        return None  # deployed with no replicas, or not rendered
    first = {key: section[key] for key in ("model", "engine") if key in section}
    kept = first | {key: value for key, value in section.items() if key not in NOT_THE_GATEWAYS}
    for key in GATEWAYS_TOO:
        if (held := getattr(pool.options, key)) is not None and (key in section or _is_special(declaration, name, key)):
            kept[key] = held.model_dump(exclude_unset=True)
    if kept.pop("telemetry", None) and pool.options.telemetry.kv_events:
        kept["telemetry"] = {"kv_events": True}  # the rest of it is the engines'
    if reach.engine is not None:
        kept = {key: value for key, value in kept.items() if key not in GATEWAYS_TOO} | {"engine": reach.engine.value}
    if reach.served_model is not None:
        kept["served_model"] = reach.served_model
    kept["endpoints"] = list(reach.endpoints)
    if reach.by_dns:
        kept["discover"] = "dns"
    return kept


def _is_special(declaration: Declaration, name: str, key: str) -> bool:
    pool = declaration.pools[name]
    special = pool.per_engine.get(pool.engine)
    return special is not None and key in special.model_fields_set


def _word(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
