"""Runs inside TensorRT-LLM's image, without headrace: builds an engine, waits for one, or serves one it has checked.

`build --plan F` converts and builds what the plan says, once; `wait --plan F` ends when it is there; `serve --plan F --
COMMAND...` refuses an engine that was made for another GPU, version or layout, or whose files have changed.
`repository --plan F --folder D` copies and fills Triton's templates, where Triton serves it.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

METADATA = "headrace-engine.json"
SETTLE_S = 10.0
"""How often `wait` looks."""
READ_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is declared of the engine; written by `headrace render kubernetes`."""

    source: str
    model_dir: str
    engine_dir: str
    tensorrt_llm: str
    """Version of TensorRT-LLM."""
    tensor: int
    pipeline: int
    dtype: str
    convert_script: str
    max_seq_len: int
    max_num_tokens: int
    max_batch_size: int
    timeout_s: int
    kv_fraction: str | None = None
    """Of Triton: share of free memory for the KV cache."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where this runs."""

    gpu_names: tuple[str, ...]
    compute_capabilities: tuple[str, ...]
    tensorrt_llm: str
    tensorrt: str


class RefusedError(Exception):
    """The engine must not be served, or cannot be built; each line says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when it is done, 1 when it is refused; `serve` does not return."""
    parser = argparse.ArgumentParser(prog="trtllm_engine.py")
    parser.add_argument("step", choices=("build", "wait", "serve", "repository"))
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--timeout-s", type=float, default=7200)
    parser.add_argument("--folder", type=Path, help="of `repository`: where Triton finds its models")
    parser.add_argument("--templates", type=Path, default=Path("/app/all_models/inflight_batcher_llm"))
    parser.add_argument("--fill", default="/app/tools/fill_template.py", help="Triton's own filler of templates")
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :]
    options = parser.parse_args(words[:end])
    plan = Plan(**json.loads(options.plan.read_text()))
    try:
        if options.step == "build":
            build(plan)
        elif options.step == "wait":
            wait(plan, options.timeout_s)
        elif options.step == "repository":
            fill_repository(plan, options.folder, options.templates, options.fill)
        else:
            serve(plan, command)
    except RefusedError as error:
        say(f"refused: {error}")
        return 1
    return 0


def build(plan: Plan) -> None:
    """Convert and build, unless what is there is what is planned; another build of it is waited for."""
    target = Path(plan.engine_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    machine = look()
    if not is_version(plan.tensorrt_llm, machine.tensorrt_llm):
        raise RefusedError(f"the image has TensorRT-LLM {machine.tensorrt_llm}, declared is {plan.tensorrt_llm}")
    with locked(target.with_name(target.name + ".lock")):
        if (target / METADATA).exists():
            problems = list(mismatches(plan, machine, target))
            if problems:
                raise RefusedError(f"{target} holds another engine: {'; '.join(problems)}. Remove it to build anew")
            say(f"{target} is built already")
            return
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        checkpoint, engine = partial / "checkpoint", partial / "engine"
        deadline_mono_s = time.monotonic() + plan.timeout_s
        run(convert_words(plan, checkpoint), deadline_mono_s)
        run(build_words(plan, checkpoint, engine), deadline_mono_s)
        write_metadata(plan, machine, engine)
        shutil.rmtree(target, ignore_errors=True)  # without metadata: left by somebody's copy
        engine.rename(target)
        shutil.rmtree(partial)
    say(f"{target} is built")


def convert_words(plan: Plan, checkpoint: Path) -> list[str]:
    return [
        *(sys.executable, plan.convert_script),
        *("--model_dir", plan.model_dir, "--output_dir", str(checkpoint), "--dtype", plan.dtype),
        *("--tp_size", str(plan.tensor), "--pp_size", str(plan.pipeline)),
    ]


def build_words(plan: Plan, checkpoint: Path, engine: Path) -> list[str]:
    return [
        *("trtllm-build", "--checkpoint_dir", str(checkpoint), "--output_dir", str(engine)),
        *("--max_seq_len", str(plan.max_seq_len), "--max_num_tokens", str(plan.max_num_tokens)),
        *("--max_batch_size", str(plan.max_batch_size), "--gemm_plugin", "auto", "--workers", "1"),
    ]


def wait(plan: Plan, timeout_s: float) -> None:
    """Return when the engine is there; its Job builds it."""
    deadline_mono_s = time.monotonic() + timeout_s
    said = False
    while not (Path(plan.engine_dir) / METADATA).exists():
        if time.monotonic() >= deadline_mono_s:
            raise RefusedError(
                f"{plan.engine_dir} is not there after {timeout_s:g} s: look at the log of its build Job"
            )
        if not said:
            say(f"waiting for the build Job to make {plan.engine_dir}")
            said = True
        time.sleep(min(SETTLE_S, max(0.05, deadline_mono_s - time.monotonic())))


def serve(plan: Plan, command: Sequence[str]) -> None:
    """Become `command`, once the engine is found to be the planned one for this machine, and whole."""
    if not command:
        raise RefusedError("no command was given after --")
    target = Path(plan.engine_dir)
    if not (target / METADATA).exists():
        raise RefusedError(f"{target} has no {METADATA}: it was not built by its Job")
    machine, world = look(), plan.tensor * plan.pipeline
    problems = list(mismatches(plan, machine, target))
    if len(machine.gpu_names) < world:
        problems.append(f"{len(machine.gpu_names)} GPUs are here, {world} are needed")
    if problems:
        raise RefusedError(f"{target} does not fit: {'; '.join(problems)}")
    say(f"{target} fits this machine; starting {command[0]}")
    os.execvp(command[0], list(command))  # noqa: S606 # the pod's own command


def fill_repository(plan: Plan, folder: Path, templates: Path, fill: str) -> None:
    """Copy Triton's templates and fill them with its own tool."""
    if not templates.is_dir():
        raise RefusedError(f"{templates} is not in this image: it is not one of Triton with TensorRT-LLM")
    shutil.copytree(templates, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "ensemble", ignore_errors=True)  # tensorrt_llm_bls does the same
    deadline_mono_s = time.monotonic() + plan.timeout_s
    for model, values in repository_values(plan).items():
        given = ",".join(f"{name}:{value}" for name, value in values.items())
        run([sys.executable, fill, "-i", str(folder / model / "config.pbtxt"), given], deadline_mono_s)


def repository_values(plan: Plan) -> dict[str, dict[str, object]]:
    """Return what the templates of each model are filled with."""
    batch: dict[str, object] = {"triton_max_batch_size": plan.max_batch_size}
    tokenizer: dict[str, object] = {"tokenizer_dir": plan.model_dir, **batch}
    types: dict[str, object] = {"logits_datatype": "TYPE_FP32", "prompt_embedding_table_data_type": "TYPE_FP16"}
    cache: dict[str, object] = {} if plan.kv_fraction is None else {"kv_cache_free_gpu_mem_fraction": plan.kv_fraction}
    return {
        "preprocessing": {**tokenizer, "preprocessing_instance_count": 1, "max_queue_size": 0},
        "postprocessing": {**tokenizer, "postprocessing_instance_count": 1},
        "tensorrt_llm_bls": {
            **batch,
            **types,
            "decoupled_mode": True,
            "bls_instance_count": 1,
            "accumulate_tokens": False,
        },
        "tensorrt_llm": {
            "triton_backend": "tensorrtllm",
            **batch,
            "decoupled_mode": True,
            "max_beam_width": 1,
            "engine_dir": plan.engine_dir,
            "batching_strategy": "inflight_fused_batching",
            "max_queue_size": 0,
            "max_queue_delay_microseconds": 1000,
            "exclude_input_in_output": True,
            **types,
            **cache,
            "encoder_input_features_data_type": "TYPE_FP16",
        },
    }


def mismatches(plan: Plan, machine: Machine, target: Path) -> Iterator[str]:
    """Yield in what the engine differs from the plan, this machine, or from what was built."""
    try:
        metadata = json.loads((target / METADATA).read_text())
        planned, built, files = metadata["plan"], metadata["machine"], metadata["files"]
    except (ValueError, KeyError, TypeError) as error:
        yield f"{METADATA} cannot be read ({error})"
        return
    for field in fields(Plan):
        if field.name not in ("engine_dir", "timeout_s", "kv_fraction") and planned.get(field.name) != getattr(
            plan, field.name
        ):
            yield f"built with {field.name} {planned.get(field.name)}, declared is {getattr(plan, field.name)}"
    for name in ("tensorrt_llm", "tensorrt"):
        if built.get(name) != getattr(machine, name):
            yield f"built by {name} {built.get(name)}, here is {getattr(machine, name)}"
    capability = (built.get("compute_capabilities") or ["unknown"])[0]
    if set(machine.compute_capabilities) != {capability}:
        yield f"built for compute capability {capability}, here is {shown(machine.compute_capabilities)}"
    name = (built.get("gpu_names") or ["unknown"])[0]
    if set(machine.gpu_names) != {name}:
        yield f"built on {name}, here is {shown(machine.gpu_names)}"
    yield from file_problems(target, files)
    ranks = len([file for file in files if file.endswith(".engine")])
    if ranks != plan.tensor * plan.pipeline:
        yield f"it has {ranks} ranks, tensor x pipeline is {plan.tensor * plan.pipeline}"


def file_problems(target: Path, files: dict[str, Any]) -> Iterator[str]:
    """Yield files that are missing, more than were built, or changed."""
    there = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()} - {METADATA}
    for name in sorted(set(files) - there):
        yield f"{name} is missing"
    for name in sorted(there - set(files)):
        yield f"{name} was not built with it"
    for name in sorted(there & set(files)):
        if digest_of(target / name) != files[name]:
            yield f"{name} has changed since it was built"


def write_metadata(plan: Plan, machine: Machine, engine: Path) -> None:
    """Write what the engine was made from, by what and for what; in the same step as the engine it appears."""
    files = {
        path.relative_to(engine).as_posix(): digest_of(path) for path in sorted(engine.rglob("*")) if path.is_file()
    }
    ranks = len([name for name in files if name.endswith(".engine")])
    if ranks != plan.tensor * plan.pipeline:
        raise RefusedError(f"trtllm-build made {ranks} ranks, tensor x pipeline is {plan.tensor * plan.pipeline}")
    text = json.dumps({"plan": asdict(plan), "machine": asdict(machine), "files": files}, indent=1, sort_keys=True)
    (engine / METADATA).write_text(text + "\n")


def look() -> Machine:
    """Ask the driver for its GPUs, and Python for the versions installed."""
    ask = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        rows = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        raise RefusedError(f"no GPU is seen here: {error}") from error
    pairs = [tuple(part.strip() for part in row.rpartition(",")[::2]) for row in rows]
    if not pairs:
        raise RefusedError("no GPU is seen here")
    return Machine(
        gpu_names=tuple(name for name, _ in pairs),
        compute_capabilities=tuple(capability for _, capability in pairs),
        tensorrt_llm=version_of("tensorrt_llm"),
        tensorrt=version_of("tensorrt"),
    )


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def is_version(declared: str, installed: str) -> bool:
    """Tell whether 1.2 or 1.2.1, as declared, is what is installed."""
    return installed == declared or installed.startswith((declared + ".", declared + "+"))


def run(words: Sequence[str], deadline_mono_s: float) -> None:
    say("$ " + " ".join(words))
    try:
        subprocess.run(words, check=True, timeout=max(1.0, deadline_mono_s - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise RefusedError(f"{words[0]} took longer than the build may") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise RefusedError(f"{words[0]} failed: {error}") from error


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Let one build work at a time; a killed one's lock is gone with it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def shown(values: Sequence[str]) -> str:
    return ", ".join(sorted(set(values))) or "none"


def say(text: str) -> None:
    sys.stdout.write(f"trtllm_engine: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
