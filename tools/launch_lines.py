"""Makes docs/launch-lines.md: one declaration as the command of each engine, and the flags of every option."""

import re
from collections.abc import Iterable
from pathlib import Path

from headrace.cli.engine_launch import launch_text
from headrace.declaration.engine_options import EngineOptions
from headrace.declaration.load import load_declaration
from headrace.declaration.shape import Section
from headrace.domain.endpoint import EngineKind
from headrace.engines.declared import lint_engines
from headrace.engines.registry import driver_for
from headrace.engines.tensorrt_llm.launch import EMITTED_CONFIG
from headrace.fleet.deploy.launch_preview import preview_launches
from headrace.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = "examples/qwen2.5-32b.yaml"
ENGINES = {
    EngineKind.VLLM: "vLLM",
    EngineKind.SGLANG: "SGLang",
    EngineKind.TENSORRT_LLM: "TensorRT-LLM",
    EngineKind.LLAMACPP: "llama.cpp",
}
SETTINGS = Settings(state_dir=Path("/var/lib/headrace"), cache_dir=Path("/var/cache/headrace"))
"""Where a host's instance would keep its files; the same wherever this page is made."""

MEMORY = """\
A memory fraction means three things. With T the device's memory, W the weights on it, A what activations and graphs \
need and K the KV cache:

| `memory.of` | the fraction is | engine that takes it |
| --- | --- | --- |
| `total` | (W + K + A) / T | vLLM, `--gpu-memory-utilization` |
| `static` | (W + K) / T | SGLang, `--mem-fraction-static` |
| `free` | K / (T - W - A) | TensorRT-LLM, `--kv_cache_free_gpu_memory_fraction` |

Declared in another meaning than the engine's, it is converted by these formulas, rounded down to a thousandth, and \
`headrace engine launch` says so. That needs `memory.device_bytes` (T) and `memory.working_bytes` (A), and for `free` \
the weights: `models.<name>.weight_bytes`, or the size of the model's files once they are here, divided by tensor x \
pipeline. Where one of them is missing the declaration is refused, with the key to declare. llama.cpp takes no \
fraction: its memory follows from context and sequences."""

LACKING = """\
An option at its default is not passed on: the engine's own default holds. An option that is declared and that the \
engine lacks is an error, with file, line and the engines that have it. A section under `pools.<name>.per_engine` \
replaces the pool's section whole on that engine, so that one declaration serves several; \
`models.<name>.per_engine` does the same for the weights (GGUF for llama.cpp). `extra_args` may not set what an option \
or headrace itself sets.

The revision is part of a model's source: headrace fetches that very commit and hands the engine its folder, offline \
(`HF_HUB_OFFLINE=1`; `runtime.env` may say otherwise). `trust_remote_code` is refused unless \
`models.<name>.reviewed_revision` is that commit. A drain takes a replica out of rotation first, waits for its \
requests, then sends SIGTERM to the engine alone, since workers that hear it themselves cut what runs; after `stop_s` \
the whole process group is killed. An engine on a GPU ends before its replacement starts. The KV events of a replica \
are on its port + 10000, the KV transfer on its port + 20000."""


def launch_page() -> list[Iterable[str] | str]:
    """Return the parts of the page."""
    about = (
        f"What `headrace up` runs for `{EXAMPLE}` (Qwen2.5-32B-Instruct, four devices, context 32,768, memory "
        "fraction 0.85, metrics on, port 30000), with nothing changed but `pools.main.engine`. "
        "`headrace engine launch --config FILE [--set KEY.PATH=VALUE]` prints this for any declaration."
    )
    parts: list[Iterable[str] | str] = [
        about,
        ["```yaml", *(ROOT / EXAMPLE).read_text().rstrip().splitlines(), "```"],
    ]
    for kind, name in ENGINES.items():
        parts += [f"## {name}", ["```bash", *launch_lines(kind), "```"]]
    parts += ["## Memory", MEMORY, "## Options", LACKING, option_table()]
    return parts


def launch_lines(kind: EngineKind) -> list[str]:
    """Return the launch of the example on one engine, as the command line prints it."""
    loaded = load_declaration(
        ROOT / EXAMPLE,
        environ={},
        is_elsewhere=True,
        overrides=(f"pools.main.engine={kind.value}",),
        checks=lint_engines,
    )
    [preview] = preview_launches(loaded.declaration, SETTINGS)
    return launch_text(preview).splitlines()


def option_table() -> list[str]:
    """Return each option with the flags that it becomes, by engine."""
    flags = {kind: flags_by_option(kind) for kind in ENGINES}
    options = [*declared_options(), *sorted({key for found in flags.values() for key in found if "." not in key})]
    lines = ["| option | " + " | ".join(ENGINES.values()) + " |", "| --- " * (len(ENGINES) + 1) + "|"]
    for option in dict.fromkeys(options):
        cells = [option_cell(kind, option, flags[kind]) for kind in ENGINES]
        if any(cells):
            lines.append(f"| `{option}` | " + " | ".join(cells) + " |")
    return lines


def declared_options() -> Iterable[str]:
    """Yield the dotted keys of a pool's engine options, and the model's that reach an engine."""
    yield from ("models.context_tokens", "models.chat_template", "models.trust_remote_code", "port", "threads")
    for name, field in EngineOptions.model_fields.items():
        section = section_of(field.annotation)
        yield from [name] if section is None else [f"{name}.{key}" for key in section.model_fields]


def section_of(annotation: object) -> type[Section] | None:
    for part in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def flags_by_option(kind: EngineKind) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    config = EMITTED_CONFIG if kind is EngineKind.TENSORRT_LLM else ()
    for emitted in (*driver_for(kind).emitted_flags, *config):
        option = re.sub(r"^pools\.<name>\.", "", emitted.option).replace("models.<name>.", "models.")
        words = found.setdefault(option, [])
        if emitted.flag not in words:
            words.append(emitted.flag)
    return found


def option_cell(kind: EngineKind, option: str, flags: dict[str, list[str]]) -> str:
    """Name the flags; "yes" where the option has an effect without one of its own; nothing where it is lacking."""
    if option in flags:
        return " ".join(f"`{flag}`" for flag in flags[option])
    return "yes" if option in driver_for(kind).options else ""
