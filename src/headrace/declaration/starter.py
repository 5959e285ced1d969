"""The first headrace.yaml of `headrace init`: commented, valid, and fitted to what was found on the machine.

The text is a template of ours; every default in its comments is read from the types, so it cannot go stale.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.declaration.builtin import (
    BUILTIN_BYTES,
    BUILTIN_MODEL,
    BUILTIN_SHA256,
    BUILTIN_SOURCE,
    PLAIN_CHATML,
    callable_name,
)
from headrace.declaration.engine_options import EMBEDDED_SEQUENCES
from headrace.declaration.fields import field_at
from headrace.declaration.problem import KeyPath
from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model that an engine serves, under the engine's own name."""

    name: str
    context_tokens: int | None
    """None: the engine does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEngine:
    """An engine that answers somewhere."""

    url: str
    engine: EngineKind
    models: tuple[FoundModel, ...]
    """Empty where the engine does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What `headrace init` found out instead of asking."""

    engines: tuple[FoundEngine, ...]
    asked: tuple[str, ...]
    """URLs that were asked for an engine."""
    gpus: tuple[str, ...]
    """As `nvidia-smi` names them."""
    has_gpu_tool: bool
    """Whether `nvidia-smi` is on PATH."""
    threads: int | None


def render_starter(found: Surroundings) -> str:
    """Write the file: remote pools for the engines that answer, else the embedded engine with the bundled model."""
    lines = [
        "# headrace.yaml: what headrace runs, for whom, and within which bounds.",
        "#",
        "#   headrace check     says what is wrong with this file, with line and remedy",
        "#   headrace up        starts what it declares;  headrace reload  applies changes to a running headrace",
        "#   headrace schema    prints every key with unit, default and bounds (also in docs/settings.md)",
        "#",
        *(f"# {line}" for line in _found_lines(found)),
        "",
        "version: 1",
        "",
        *_gateway_lines(),
        "",
        *_model_lines(found),
        "",
        *_pool_lines(found),
        "",
        *_tenant_lines(),
        "",
        *_ledger_lines(),
    ]
    return "\n".join(lines) + "\n"


def _found_lines(found: Surroundings) -> list[str]:
    lines = ["Found on this machine when the file was written:"]
    if found.asked:
        for engine in found.engines:
            names = ", ".join(_one_line(model.name) for model in engine.models) or "a model it does not name"
            lines.append(f"  - {engine.engine.value} at {engine.url}, serving {names}")
        silent = [url for url in found.asked if url not in {engine.url for engine in found.engines}]
        if silent:
            lines.append(f"  - no engine answered at {', '.join(silent)}")
    if found.gpus:
        lines.append(f"  - NVIDIA GPUs: {', '.join(found.gpus)}")
    elif found.has_gpu_tool:
        lines.append("  - nvidia-smi is there but shows no GPU")
    else:
        lines.append("  - no nvidia-smi, so no NVIDIA GPU that is ready for use")
    if found.threads is not None:
        lines.append(f"  - {found.threads} CPU threads")
    return lines


def _gateway_lines() -> list[str]:
    return [
        "gateway:",
        *_commented_value(("gateway", "listen"), "127.0.0.1:7070", "callers connect here"),
        *_commented_value(("gateway", "control"), "127.0.0.1:7071", "operators: control API, /metrics"),
        "  # To serve other machines, listen on 0.0.0.0:7070 and give a certificate:",
        "  # tls: {certificate: /etc/headrace/tls.crt, key: /etc/headrace/tls.key}",
        "  limits:",
        *_default_line(("gateway", "limits", "in_flight"), "    "),
        *_default_line(("gateway", "limits", "body_bytes"), "    "),
    ]


def _commented_value(path: KeyPath, value: str, comment: str) -> list[str]:
    return [f"  {path[-1]}: {value}  # {comment}"]


def _default_line(path: KeyPath, indent: str) -> list[str]:
    """Write a key with its default, and its description above."""
    field = field_at(path)
    if field is None:
        raise LookupError(f"headrace.yaml has no key {path}")
    default: object = field.get_default()
    shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
    return [f"{indent}# {field.description}", f"{indent}{path[-1]}: {shown}"]


def _model_lines(found: Surroundings) -> list[str]:
    lines = ["# What callers can ask for, by the name they write.", "models:"]
    if not found.engines:
        template = PLAIN_CHATML.replace("'", "''")
        return [
            *lines,
            f"  {BUILTIN_MODEL}:",
            "    # Also: hf:ORG/NAME@REVISION[#file] or file:PATH",
            f"    source: {BUILTIN_SOURCE}",
            f"    sha256: {BUILTIN_SHA256}",
            f"    weight_bytes: {BUILTIN_BYTES}",
            "    requantize: q8_0  # converted once after the fetch: faster on CPUs",
            "    context_tokens: 2048  # of one sequence",
            "    # The model's own template adds a system prompt that makes it answer worse.",
            f"    chat_template: '{template}'",
        ]
    for name, model in {name: model for name, model, _ in _served(found.engines)}.items():
        context = None if model is None else model.context_tokens
        keys = "{}" if context is None or context < 128 else f"{{context_tokens: {context}}}"
        lines.append(f"  {_quoted(name)}: {keys}  # the engine has the weights; nothing to fetch")
    return lines


def _pool_lines(found: Surroundings) -> list[str]:
    lines = ["# Who serves them: replicas that headrace runs, or endpoints that already run.", "pools:"]
    if not found.engines:
        return [
            *lines,
            "  default:",
            f"    model: {BUILTIN_MODEL}",
            "    engine: llamacpp  # in this package; also vllm, sglang, tensorrt-llm with runtime: {python: PATH}",
            "    replicas: 1",
            "    batching:",
            f"      max_sequences: {EMBEDDED_SEQUENCES}  # decoded at once by one replica",
        ]
    for number, (name, model, engine) in enumerate(_served(found.engines), start=1):
        lines += [
            f"  {engine.engine.value}-{number}:",
            f"    model: {_quoted(name)}",
            f"    engine: {engine.engine.value}",
            f"    endpoints: [{_quoted(engine.url)}]",
        ]
        if model is not None and model.name != name:
            lines.append(f"    served_model: {_quoted(model.name)}")
    return [
        *lines,
        "    # A key for the engine never stands here, only where it comes from:",
        '    # credentials: {bearer: "${env:ENGINE_KEY}"}',
    ]


def _served(engines: Sequence[FoundEngine]) -> list[tuple[str, FoundModel | None, FoundEngine]]:
    """Return (name for callers, model at the engine, engine) for every model found."""
    return [
        (callable_name(model.name) if model is not None else "default", model, engine)
        for engine in engines
        for model in (engine.models or (None,))
    ]


def _tenant_lines() -> list[str]:
    return [
        "# Who calls. `headrace keys create --tenant NAME` makes a key.",
        "tenants:",
        "  default:",
        '    models: ["*"]  # all; or names of the models above',
        "    limits:",
        *_default_line(("tenants", "x", "limits", "requests_per_min"), "      "),
        *_default_line(("tenants", "x", "limits", "concurrent_requests"), "      "),
    ]


def _ledger_lines() -> list[str]:
    return [
        "ledger:",
        "  # Requests are accounted in SQLite in the state folder; for PostgreSQL:",
        "  # database: postgresql+psycopg://headrace:${env:HEADRACE_DB_PASSWORD}@db.example.com/headrace",
        *_default_line(("ledger", "flush_interval_s"), "  "),
    ]


def _quoted(text: str) -> str:
    """Quote a text for YAML: JSON's strings are YAML's, but for characters that YAML wants escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def _one_line(text: str) -> str:
    """Make a foreign text safe for a comment."""
    return "".join(char if char.isprintable() else " " for char in text)[:200]
