"""From a machine's answers, live or captured, to facts. Pure: text in, values out; what is missing stays unknown."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from headrace.fleet.deploy.preflight.core.machine import Disk, EngineBuild, GpuFacts, Machine, ModelFacts
from headrace.sizing.architecture import Architecture, UnknownArchitectureError
from headrace.sizing.hf_config import read_hf_config

MIB = 2**20
LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""
_CUDA = re.compile(r"CUDA Version:\s*(\d+)\.(\d+)")
_OFFSET = re.compile(r"System time\s*:\s*([\d.]+) seconds (slow|fast)")


def read_machine(texts: Mapping[str, str]) -> Machine:
    """Return what the answers to `questions.QUESTIONS` say."""
    gpus, driver = _gpus(texts.get("gpus.csv", ""))
    limits = texts.get("limits.txt", "")
    cuda = _CUDA.search(texts.get("nvidia-smi.txt", ""))
    links, numa = _topology(texts.get("topology.txt", ""))
    interfaces = texts.get("interfaces.txt")
    rdma = texts.get("rdma.txt")
    runtimes = texts.get("runtimes.txt")
    offset_s, is_synchronized = _clock(texts.get("clock.txt", ""))
    return Machine(
        gpus=gpus,
        has_gpu_tools=bool(texts.get("devices.txt", "").strip()),
        driver=driver,
        driver_cuda=(int(cuda[1]), int(cuda[2])) if cuda else None,
        links=links,
        numa=numa,
        memory_bytes=_memory(texts.get("memory.txt", "")),
        shm_bytes=_first_number(_last_line(texts.get("shm.txt", ""))),
        open_files=_limit(limits, "Max open files"),
        locked_bytes=_limit(limits, "Max locked memory"),
        disk=_disk(texts.get("disk.txt", "")),
        ports=_ports(texts["ports.txt"]) if "ports.txt" in texts else None,
        interfaces=None if interfaces is None else _interfaces(interfaces),
        rdma=None if rdma is None else tuple(rdma.split()),
        runtimes=None if runtimes is None else frozenset(_runtimes(runtimes)),
        clock_offset_s=offset_s,
        is_clock_synchronized=is_synchronized,
        engines=_engines(texts.get("engines.txt", "")),
    )


def _gpus(text: str) -> tuple[tuple[GpuFacts, ...], str | None]:
    gpus: list[GpuFacts] = []
    driver = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 6 or not cells[0].isdigit() or not cells[3].isdigit():
            continue
        driver = cells[2]
        major, _, minor = cells[5].partition(".")
        gpus.append(
            GpuFacts(
                index=int(cells[0]),
                name=cells[1],
                total_bytes=int(cells[3]) * MIB,
                used_bytes=int(cells[4]) * MIB if cells[4].isdigit() else 0,
                capability=int(major) * 10 + int(minor) if major.isdigit() and minor.isdigit() else None,
            )
        )
    return tuple(gpus), driver


def _topology(text: str) -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    """Read `nvidia-smi topo -m`: a matrix with tabs, terminal colours on the column heads."""
    rows = [line.split("\t") for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    rows = [[cell.strip() for cell in row] for row in rows]
    none: list[str] = []
    heads = next((row for row in rows if "GPU0" in row[1:]), none)
    links: dict[tuple[int, int], str] = {}
    numa: dict[int, str] = {}
    numa_column = heads.index("NUMA Affinity") if "NUMA Affinity" in heads else None
    for row in rows:
        if not (found := re.fullmatch(r"GPU(\d+)", row[0])) or row is heads:
            continue
        one = int(found[1])
        for column, head in enumerate(heads):
            other = re.fullmatch(r"GPU(\d+)", head)
            if other and column < len(row) and row[column] not in ("X", ""):
                links[one, int(other[1])] = row[column]
        if numa_column is not None and numa_column < len(row) and row[numa_column][:1].isdigit():
            numa[one] = row[numa_column]
    return links, numa


def _memory(text: str) -> int | None:
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1]


def _first_number(line: str) -> int | None:
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return int(word) if word.isdigit() else None


def _limit(text: str, name: str) -> int | None:
    """The soft limit of one row of /proc/self/limits."""
    for line in text.splitlines():
        if line.startswith(name):
            word = line[len(name) :].split()[0]
            return -1 if word == "unlimited" else int(word)
    return None


def _disk(text: str) -> Disk | None:
    cells = _last_line(text).split(maxsplit=2)
    if len(cells) < 3 or not cells[0].isdigit():
        return None
    return Disk(free_bytes=int(cells[0]), filesystem=cells[1], path=cells[2])


def _ports(text: str) -> frozenset[int]:
    ports: set[int] = set()
    for line in text.splitlines():
        cells = line.split()
        if len(cells) > 3 and cells[3] == LISTENING and ":" in cells[1]:
            ports.add(int(cells[1].rsplit(":", 1)[1], 16))
    return frozenset(ports)


def _interfaces(text: str) -> dict[str, bool]:
    """Name -> up, from `NAME/operstate:up` lines. Loopback and tunnels say unknown, and work."""
    found: dict[str, bool] = {}
    for line in text.splitlines():
        name, separator, state = line.partition("/operstate:")
        if separator:
            found[name] = state.strip() in ("up", "unknown")
    return found


def _runtimes(text: str) -> list[str]:
    names = [line.rsplit("/", 1)[-1] for line in text.split()]
    return ["nvidia" if name == "nvidia-ctk" else name for name in names]


def _clock(text: str) -> tuple[float | None, bool | None]:
    if found := _OFFSET.search(text):
        return float(found[1]), None
    if "NTPSynchronized=" in text:
        return None, "NTPSynchronized=yes" in text
    return None, None


def _engines(text: str) -> dict[str, EngineBuild]:
    engines: dict[str, EngineBuild] = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 2:
            cuda = re.fullmatch(r"(\d+)\.(\d+)", cells[2]) if len(cells) > 2 else None
            engines[cells[0]] = EngineBuild(version=cells[1], cuda=(int(cuda[1]), int(cuda[2])) if cuda else None)
    return engines


def read_model(
    path: str, texts: Mapping[str, str], *, files: Mapping[str, int], gguf: Architecture | None = None
) -> ModelFacts:
    """Return what a model's small files say. `files`: all of them, with their sizes; `gguf`: read from the one file."""
    config, index = _json(texts.get("config.json")), _json(texts.get("model.safetensors.index.json"))
    tokenizer = _json(texts.get("tokenizer_config.json"))
    architecture, unread = gguf, ""
    if architecture is None and config:
        try:
            architecture = read_hf_config(config)
        except UnknownArchitectureError as error:
            unread = f"config.json: {error}"
    elif architecture is None:
        unread = "no config.json that can be read"
    metadata = cast("Mapping[str, Any]", index.get("metadata") or {})
    shards = cast("Mapping[str, str]", index.get("weight_map") or {})
    total = metadata.get("total_size")
    built_on = _json(texts.get("headrace-engine.json")).get("gpu")
    return ModelFacts(
        path=path,
        is_here=True,
        files=files,
        architecture=architecture,
        unread=unread,
        shards=tuple(sorted(set(shards.values()))),
        total_bytes=int(total) if isinstance(total, int | float) else None,
        sha256=texts["sha256.txt"].split()[0] if texts.get("sha256.txt", "").strip() else None,
        has_own_template="chat_template" in tokenizer or any("chat_template" in name for name in files),
        has_remote_code="auto_map" in config,
        engine_built_on=str(built_on) if built_on else None,
    )


def _json(text: str | None) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def read_files(text: str) -> dict[str, int]:
    """Read `files.txt`: bytes and path on each line."""
    files: dict[str, int] = {}
    for line in text.splitlines():
        size, _, name = line.strip().partition(" ")
        if size.isdigit() and name:
            files[name] = int(size)
    return files
