"""From a replica's plan to what its driver is told (`engines.contract.ReplicaSpec`), and what its launch needs."""

import shutil
from pathlib import Path

from headrace.declaration.problem import dotted
from headrace.engines.contract import Driver, EngineUnavailableError, Launch, ReplicaSpec
from headrace.engines.declared import say_problem
from headrace.fleet.deploy.replica_plan import ReplicaPlan
from headrace.fleet.deploy.state_files import file_stem
from headrace.settings import Settings

ENGINE_HOST = "127.0.0.1"
"""Engines have no authentication worth the name: only this machine reaches them."""

WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin")
"""Files that hold weights, the first suffix that a folder has."""


def make_spec(
    plan: ReplicaPlan, settings: Settings, *, port: int, model_path: Path, draft_path: Path | None = None
) -> ReplicaSpec:
    """Resolve `plan` to one process on this machine."""
    shape = plan.shape
    return ReplicaSpec(
        pool=plan.pool,
        replica=plan.number,
        served_model=shape.served_model,
        model_path=model_path,
        host=ENGINE_HOST,
        port=port,
        context_tokens=shape.model.context_tokens,
        threads=shape.threads,
        embeddings=shape.embeddings,
        slot_dir=settings.slot_dir,
        file_dir=settings.run_dir / "launch" / file_stem(plan.stem),
        stop_s=plan.bounds.stop_s,
        load_timeout_s=plan.bounds.load_timeout_s,
        options=shape.options,
        chat_template=shape.model.chat_template,
        draft_path=draft_path,
        trust_remote_code=shape.model.trust_remote_code,
        weight_bytes=shape.model.weight_bytes or find_weight_bytes(model_path),
    )


def find_weight_bytes(path: Path) -> int | None:
    """Return the size of the weights in a model's file or folder; None where there are none."""
    if path.is_file():
        return path.stat().st_size
    for suffix in WEIGHT_SUFFIXES:
        if sizes := [file.stat().st_size for file in path.glob(f"*{suffix}")]:
            return sum(sizes)
    return None


def check_options(driver: Driver, spec: ReplicaSpec) -> None:
    """Refuse what the engine cannot do: seen at the declaration's check, but for what only the model's files tell.

    Raises: EngineUnavailableError.
    """
    problems = list(driver.check_options(spec))
    if problems:
        said = "; ".join(f"pools.{spec.pool}.{dotted(problem.key)} {say_problem(problem)}" for problem in problems)
        raise EngineUnavailableError(said)


def require_program(plan: ReplicaPlan, launch: Launch) -> None:
    """Refuse a command whose program is not here.

    Raises: EngineUnavailableError.
    """
    if shutil.which(launch.argv[0]) is None:
        raise EngineUnavailableError(
            f"{launch.argv[0]} is not here, or cannot be executed. Set pools.{plan.pool}.runtime.python to the Python "
            f"of the environment in which {plan.shape.engine.value} is installed, or runtime.command"
        )


def write_launch_files(launch: Launch) -> None:
    """Write what the command names, for this user alone."""
    for path, text in launch.files.items():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.write_text(text)
