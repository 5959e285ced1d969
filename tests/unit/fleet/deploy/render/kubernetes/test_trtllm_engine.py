"""The script that runs in TensorRT-LLM's image, run for real: its tools are small programs of the test."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.fleet.deploy.render.kubernetes import trtllm_engine

SCRIPT = Path(trtllm_engine.__file__)
H100, A100 = "NVIDIA H100 80GB HBM3, 9.0", "NVIDIA A100-SXM4-80GB, 8.0"

CONVERT = """\
import pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = pathlib.Path(words["--output_dir"])
folder.mkdir()
(folder / "words.txt").write_text(" ".join(sys.argv[1:]))
"""

BUILD = """\
#!{python}
import os, pathlib, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
checkpoint = pathlib.Path(words["--checkpoint_dir"]) / "words.txt"
given = checkpoint.read_text().split()
folder = pathlib.Path(words["--output_dir"])
folder.mkdir()
for rank in range(int(os.environ.get("RANKS", "2"))):
    (folder / f"rank{{rank}}.engine").write_text(f"rank {{rank}} of " + " ".join(given))
(folder / "config.json").write_text(" ".join(sys.argv[1:]))
"""

SERVER = """\
#!/bin/sh
echo "serving $*"
"""


class Image:
    """A folder that stands for TensorRT-LLM's image and the model volume."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "bin"
        self.programs.mkdir()
        self.plan: dict[str, Any] = {
            "source": "hf:acme/qwen@0123",
            "model_dir": str(root / "weights"),
            "engine_dir": str(root / "engines" / "main"),
            "tensorrt_llm": "1.2.1",
            "tensor": 2,
            "pipeline": 1,
            "dtype": "auto",
            "convert_script": str(root / "convert_checkpoint.py"),
            "max_seq_len": 8192,
            "max_num_tokens": 4096,
            "max_batch_size": 64,
            "timeout_s": 60,
        }
        (root / "convert_checkpoint.py").write_text(CONVERT)
        self.program("trtllm-build", BUILD.format(python=sys.executable))
        self.program("trtllm-serve", SERVER)
        self.has(gpus=[H100, H100], version="1.2.1")

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def has(self, *, gpus: list[str], version: str) -> None:
        """Say which GPUs the driver shows, and which TensorRT-LLM is installed."""
        listing = "\\n".join(gpus)
        self.program("nvidia-smi", f"#!/bin/sh\nprintf '{listing}\\n'\n")
        for package, number in (("tensorrt_llm", version), ("tensorrt", "10.13.3")):
            folder = self.root / "packages" / f"{package}-0.dist-info"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {number}\n")

    def run(self, step: str, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
        plan = self.root / "plan.json"
        plan.write_text(json.dumps(self.plan))
        env = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.root / "packages"),
            **environ,
        }
        command = [sys.executable, str(SCRIPT), step, "--plan", str(plan), *more]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)

    def serve(self) -> subprocess.CompletedProcess[str]:
        return self.run("serve", "--", "trtllm-serve", "serve", self.plan["engine_dir"], "--backend", "tensorrt")

    @property
    def engine(self) -> Path:
        return Path(self.plan["engine_dir"])


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


@pytest.fixture
def built(image: Image) -> Image:
    done = image.run("build")
    assert done.returncode == 0, done.stdout + done.stderr
    return image


def test_an_engine_is_converted_built_and_described(built: Image) -> None:
    """The engine appears whole, with what it was made from, by what, and for which GPU; nothing else is left."""
    metadata = json.loads((built.engine / "headrace-engine.json").read_text())
    assert metadata["plan"] == {**built.plan, "kv_fraction": None}
    assert metadata["machine"]["compute_capabilities"] == ["9.0", "9.0"]
    assert metadata["machine"]["gpu_names"][0] == "NVIDIA H100 80GB HBM3"
    assert metadata["machine"]["tensorrt_llm"] == "1.2.1"
    assert sorted(metadata["files"]) == ["config.json", "rank0.engine", "rank1.engine"]
    assert "--tp_size 2 --pp_size 1" in (built.engine / "rank0.engine").read_text()
    assert "--max_seq_len 8192" in (built.engine / "config.json").read_text()
    assert sorted(path.name for path in built.engine.parent.iterdir()) == ["main", "main.lock"]


def test_a_second_build_does_nothing(built: Image) -> None:
    """A Job that runs again finds its engine."""
    built.program("trtllm-build", "#!/bin/sh\nexit 9\n")
    done = built.run("build")
    assert done.returncode == 0
    assert "is built already" in done.stdout


def test_an_engine_that_fits_is_served(built: Image) -> None:
    """The script becomes the server, with its arguments untouched."""
    done = built.serve()
    assert done.returncode == 0, done.stdout
    assert f"serving serve {built.engine} --backend tensorrt" in done.stdout


def test_an_engine_for_another_gpu_is_refused(built: Image) -> None:
    """An engine built on H100 does not start on A100: by its architecture and by its name."""
    built.has(gpus=[A100, A100], version="1.2.1")
    done = built.serve()
    assert done.returncode == 1
    assert "built for compute capability 9.0, here is 8.0" in done.stdout
    assert "built on NVIDIA H100 80GB HBM3, here is NVIDIA A100-SXM4-80GB" in done.stdout
    assert "serving serve" not in done.stdout


def test_gpus_of_two_kinds_are_refused(built: Image) -> None:
    """One wrong GPU among the right ones is one too many."""
    built.has(gpus=[H100, A100], version="1.2.1")
    assert "here is 8.0, 9.0" in built.serve().stdout


def test_an_engine_of_another_version_is_refused(built: Image) -> None:
    """An image that was updated under the engine does not serve it."""
    built.has(gpus=[H100, H100], version="1.2.0")
    done = built.serve()
    assert done.returncode == 1
    assert "built by tensorrt_llm 1.2.1, here is 1.2.0" in done.stdout


@pytest.mark.parametrize(("key", "value"), [("tensor", 4), ("max_seq_len", 16384), ("source", "hf:acme/qwen@4567")])
def test_an_engine_of_another_layout_is_refused(built: Image, key: str, value: object) -> None:
    """What is declared now and what was built must be the same."""
    before = built.plan[key]
    built.plan[key] = value
    built.has(gpus=[H100] * 4, version="1.2.1")
    done = built.serve()
    assert done.returncode == 1
    assert f"built with {key} {before}, declared is {value}" in done.stdout


def test_too_few_gpus_are_refused(built: Image) -> None:
    """A replica that got one GPU instead of two says so instead of failing within the engine."""
    built.has(gpus=[H100], version="1.2.1")
    assert "1 GPUs are here, 2 are needed" in built.serve().stdout


def test_a_changed_or_missing_file_is_refused(built: Image) -> None:
    """A byte that changed, a rank that is gone and one that came are named."""
    (built.engine / "rank0.engine").write_text("another")
    (built.engine / "rank1.engine").unlink()
    (built.engine / "rank2.engine").write_text("new")
    said = built.serve().stdout
    assert "rank0.engine has changed since it was built" in said
    assert "rank1.engine is missing" in said
    assert "rank2.engine was not built with it" in said


def test_an_engine_without_description_is_refused(image: Image) -> None:
    """Files that somebody copied there are not served."""
    image.engine.mkdir(parents=True)
    (image.engine / "rank0.engine").write_text("x")
    done = image.serve()
    assert done.returncode == 1
    assert "it was not built by its Job" in done.stdout


def test_a_damaged_description_is_refused(built: Image) -> None:
    """A description that cannot be read is a reason, not a crash."""
    (built.engine / "headrace-engine.json").write_text("{")
    done = built.serve()
    assert done.returncode == 1
    assert "headrace-engine.json cannot be read" in done.stdout


def test_a_build_that_fails_leaves_no_engine(image: Image) -> None:
    """A step that fails, or makes too few ranks, is said, and the next try begins anew."""
    image.program("trtllm-build", "#!/bin/sh\nexit 9\n")
    done = image.run("build")
    assert done.returncode == 1
    assert "trtllm-build failed" in done.stdout
    assert not image.engine.exists()
    image.program("trtllm-build", BUILD.format(python=sys.executable))
    done = image.run("build", RANKS="1")
    assert "trtllm-build made 1 ranks, tensor x pipeline is 2" in done.stdout
    assert not image.engine.exists()
    assert image.run("build").returncode == 0


def test_a_build_by_another_version_than_declared_is_refused(image: Image) -> None:
    """An image whose version is not the declared one builds nothing."""
    image.plan["tensorrt_llm"] = "1.1"
    done = image.run("build")
    assert done.returncode == 1
    assert "the image has TensorRT-LLM 1.2.1, declared is 1.1" in done.stdout


def test_a_machine_without_gpu_is_refused(image: Image) -> None:
    """Without a driver nothing is built, and the reason is said."""
    image.program("nvidia-smi", "#!/bin/sh\nexit 9\n")
    done = image.run("build")
    assert done.returncode == 1
    assert "no GPU is seen here" in done.stdout


FILL = """\
import pathlib, sys
assert sys.argv[1] == "-i"
path = pathlib.Path(sys.argv[2])
text = path.read_text()
for pair in sys.argv[3].split(","):
    name, _, value = pair.partition(":")
    text = text.replace("${" + name + "}", value)
path.write_text(text)
"""


def test_tritons_repository_is_filled(image: Image) -> None:
    """Templates are copied and filled by Triton's own tool; the ensemble, which is not served, is left out."""
    templates = image.root / "all_models"
    for model in ("ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls", "tensorrt_llm"):
        (templates / model).mkdir(parents=True)
        (templates / model / "config.pbtxt").write_text(
            "${triton_max_batch_size} ${tokenizer_dir} ${engine_dir} ${kv_cache_free_gpu_mem_fraction}"
        )
    (image.root / "fill.py").write_text(FILL)
    image.plan["kv_fraction"] = "0.8"
    more = [
        "--folder",
        str(image.root / "repository"),
        "--templates",
        str(templates),
        "--fill",
        str(image.root / "fill.py"),
    ]
    done = image.run("repository", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.parent.name: path.read_text().split() for path in (image.root / "repository").rglob("config.pbtxt")}
    assert sorted(made) == ["postprocessing", "preprocessing", "tensorrt_llm", "tensorrt_llm_bls"]
    assert made["preprocessing"][:2] == ["64", image.plan["model_dir"]]
    assert made["tensorrt_llm"][2:] == [image.plan["engine_dir"], "0.8"]


def test_an_image_without_triton_is_refused(image: Image) -> None:
    """Triton's templates are in Triton's image alone."""
    done = image.run("repository", "--folder", str(image.root / "r"), "--templates", str(image.root / "none"))
    assert done.returncode == 1
    assert "it is not one of Triton with TensorRT-LLM" in done.stdout


def test_waiting_ends_with_the_build(image: Image) -> None:
    """A pod that is there before its engine waits for it, and not for ever."""
    done = image.run("wait", "--timeout-s", "0.2")
    assert done.returncode == 1
    assert "look at the log of its build Job" in done.stdout
    assert image.run("build").returncode == 0
    assert image.run("wait", "--timeout-s", "0.2").returncode == 0
