"""How SGLang is installed and started on a CPU: attention in plain PyTorch, GPU kernels replaced by `stubs/`."""

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
    """Decode keeps what it retracts in plain memory: its default needs a GPU."""
    return (
        *("--disaggregation-mode", side.value),
        *("--disaggregation-transfer-backend", "mooncake_tcp"),
        *("--disaggregation-bootstrap-port", str(transfer_port)),
        *EXACT,
        *(("--disaggregation-decode-retraction-backup", "cpu_tensor") if side is Side.DECODE else ()),
    )


def live_requests(url: str) -> int:
    """Asked of the scheduler: its gauges are written every 40 tokens and when it falls idle."""
    loads = httpx.get(f"{url}/v1/loads", timeout=30).json()["loads"]
    return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


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
        needs="import mooncake.engine",
        packages="libibverbs1 libnl-3-200 libnl-route-3-200 librdmacm1 libnuma1 (their names in Debian)",
        answers_whole=False,
        kv_metric="sglang:num_used_tokens",
        transfers_metric=(Side.PREFILL, "sglang:kv_transfer_total_mb_count"),
    ),
)
