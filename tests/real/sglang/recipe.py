"""How SGLang is installed and started on a CPU: attention in plain PyTorch, GPU kernels replaced by `stubs/`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from tests.real.installation import InstallRecipe
from tests.real.serving import CONTEXT_TOKENS, EXACT, PairRecipe, ServeRecipe

from headrace.declaration.builtin import BUILTIN_MODEL
from headrace.domain.endpoint import EngineKind
from headrace.gateway.handover.core.events import Side

VERSION = "0.5.23"
HERE = Path(__file__).parent
STUBS = HERE / "stubs"
MEMORY_OF_THREE = {"fraction": 0.25, "of": "static"}
"""Weights in float32 are counted too, and what others have taken is not."""
RETRACTED_TO_MEMORY = ("--disaggregation-decode-retraction-backup", "cpu_tensor")
"""Where a decode engine keeps what it retracts: the default needs a GPU."""
CPU = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(STUBS)}


def argv(python: Path, model: Path, port: int) -> Sequence[str]:
    return (
        str(python),
        *("-m", "sglang.launch_server"),
        *("--model-path", str(model)),
        *("--served-model-name", BUILTIN_MODEL),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--device", "cpu", "--attention-backend", "torch_native"),
        *("--context-length", str(CONTEXT_TOKENS), "--max-total-tokens", "16384", "--max-running-requests", "8"),
        "--enable-metrics",
        "--enable-cache-report",
        *("--tool-call-parser", "qwen25"),
    )


def pair_args(side: Side, transfer_port: int) -> Sequence[str]:
    return (
        *("--disaggregation-mode", side.value),
        *("--disaggregation-transfer-backend", "mooncake_tcp"),
        *("--disaggregation-bootstrap-port", str(transfer_port)),
        *EXACT,
        *(RETRACTED_TO_MEMORY if side is Side.DECODE else ()),
    )


def live_requests(url: str) -> int:
    """Asked of the scheduler: its gauges are written every 40 tokens and when it falls idle."""
    loads = httpx.get(f"{url}/v1/loads", timeout=30).json()["loads"]
    return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


def pair_pool(side: Side, own: Mapping[str, Any]) -> dict[str, Any]:
    """Mooncake over TCP is Mooncake with this variable."""
    runtime = {**own["runtime"], "env": {**CPU, "MC_FORCE_TCP": "1"}}
    found: dict[str, Any] = {
        "runtime": runtime,
        "disaggregation": {"role": side.value, "connector": "mooncake"},
        "memory": MEMORY_OF_THREE,
    }
    if side is Side.DECODE:
        found["extra_args"] = [*own["extra_args"], *RETRACTED_TO_MEMORY]
    return found


def held(url: str) -> str:
    """A leg whose other one does not come is in none of the ordinary queues."""
    counts: Counter[str] = Counter()
    for load in httpx.get(f"{url}/v1/loads", timeout=30).json()["loads"]:
        queues = load.get("disaggregation") or {}
        counts.update({name: load[name] for name in ("num_running_reqs", "num_waiting_reqs", "num_used_tokens")})
        counts.update({name: count for name, count in queues.items() if name.endswith("_queue_reqs")})
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def pool(python: Path) -> Mapping[str, Any]:
    return {
        "runtime": {"python": str(python), "device": "cpu", "env": CPU},
        "batching": {"max_sequences": 8},
        "memory": {"fraction": 0.1, "of": "static"},
        "extra_args": ["--attention-backend", "torch_native"],
    }


RECIPE = ServeRecipe(
    install=InstallRecipe(
        kind=EngineKind.SGLANG,
        version=VERSION,
        folder=HERE,
        finish=lambda _: None,
        import_check=f"import sys; sys.path.insert(0, {str(STUBS)!r}); import sglang.version, torch",
    ),
    argv=argv,
    env={
        "HF_HUB_OFFLINE": "1",
        **CPU,
        "SGLANG_USE_CPU_ENGINE": "1",
    },
    pool=pool,
    running_metric="sglang:num_running_reqs",
    live_requests=live_requests,
    core_name="sglang::scheduler",
    pair=PairRecipe(
        args=pair_args,
        env=lambda _, __: {},
        pool=pair_pool,
        needs="import mooncake.engine",
        packages="libibverbs1 libnl-3-200 libnl-route-3-200 librdmacm1 libnuma1 (their names in Debian)",
        answers_whole=False,
        held=held,
        transfers_metric=(Side.PREFILL, "sglang:kv_transfer_total_mb_count"),
    ),
)
