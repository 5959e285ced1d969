"""What a machine is asked: one shell line for each text of a capture. Live and remote checks ask the same.

The script that `headrace check --capture-script` prints is made of this table; `facts.py` reads the answers.
"""

import shlex
from collections.abc import Mapping
from types import MappingProxyType

QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "gpus.csv": "nvidia-smi --query-gpu=index,name,driver_version,memory.total,memory.used,compute_cap "
        "--format=csv,noheader,nounits",
        "nvidia-smi.txt": "nvidia-smi",
        "devices.txt": "command -v nvidia-smi; ls /dev | grep '^nvidia[0-9]'; true",
        "topology.txt": "nvidia-smi topo -m",
        "memory.txt": "cat /proc/meminfo",
        "shm.txt": "df -B1 --output=size,avail,fstype /dev/shm",
        "limits.txt": "cat /proc/self/limits",
        "disk.txt": 'df -B1 --output=avail,fstype,target "$MODELS"',
        "ports.txt": "cat /proc/net/tcp /proc/net/tcp6",
        "interfaces.txt": "cd /sys/class/net && grep -H . */operstate",
        "rdma.txt": "ls /sys/class/infiniband || true",
        "runtimes.txt": "for name in docker podman nvidia-ctk; do command -v $name; done; true",
        "clock.txt": "chronyc tracking || timedatectl show",
    }
)
"""File name -> shell line. `$MODELS` is the folder where models are kept."""

PYTHON_LINE = (
    "import torch, importlib.metadata as m\n"
    "for n, p in (('vllm', 'vllm'), ('sglang', 'sglang'), ('tensorrt-llm', 'tensorrt_llm')):\n"
    "  try: print(n, m.version(p), torch.version.cuda)\n"
    "  except m.PackageNotFoundError: pass"
)
"""Asks an engine's Python for `engines.txt`: name, version and the CUDA version that its PyTorch was built for."""

MODEL_TEXTS = ("config.json", "model.safetensors.index.json", "tokenizer_config.json", "headrace-engine.json")
"""Small files of a model's folder that are read."""


def capture_script(models: Mapping[str, str], *, models_folder: str, python: str = "python3") -> str:
    """Return a shell script that writes a capture into ./capture: to be run on the machine in question.

    `models`: path of each declared model by its name.
    """
    lines = [
        "#!/bin/sh",
        "# Writes ./capture for `headrace check --from-capture`. Reads only; needs no root.",
        f"export MODELS={shlex.quote(models_folder)}",
        'while [ ! -d "$MODELS" ] && [ "$MODELS" != / ]; do MODELS=$(dirname "$MODELS"); done',
        "mkdir -p capture/models",
    ]
    lines += [f"( {line} ) > capture/{name} 2>/dev/null || rm -f capture/{name}" for name, line in QUESTIONS.items()]
    lines.append(f"{python} -c {shlex.quote(PYTHON_LINE)} > capture/engines.txt 2>/dev/null")
    for name, path in models.items():
        folder, place = shlex.quote(f"capture/models/{name}"), shlex.quote(path)
        lines += [
            f"if [ -e {place} ]; then mkdir -p {folder}",
            f"  if [ -d {place} ]; then ( cd {place} && find -L . -type f -printf '%s %P\\n' ) > {folder}/files.txt",
            f"    for file in {' '.join(MODEL_TEXTS)}; do cp {place}/$file {folder}/ 2>/dev/null; done",
            f"  else stat -Lc '%s %n' {place} > {folder}/files.txt; sha256sum {place} > {folder}/sha256.txt; fi",
            "fi",
        ]
    return "\n".join(lines) + "\n"
