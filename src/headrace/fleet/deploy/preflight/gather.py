"""Where facts come from: this machine, asked now, or a folder that holds another machine's answers."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.declaration.model import Declaration, Model
from headrace.declaration.model_source import HuggingFaceSource, parse_source
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.launch_preview import place_of
from headrace.fleet.deploy.preflight.core.judge import GPU_ENGINES
from headrace.fleet.deploy.preflight.core.machine import Machine, ModelFacts, PoolPlan
from headrace.fleet.deploy.preflight.facts import read_files, read_machine, read_model
from headrace.fleet.deploy.preflight.questions import MODEL_TEXTS, PYTHON_LINE, QUESTIONS, capture_script
from headrace.settings import Settings
from headrace.sizing.architecture import UnknownArchitectureError
from headrace.sizing.gguf_file import read_gguf
from headrace.sizing.published import find_published
from headrace.sizing.weights import checkpoint_bytes

ANSWER_S = 20.0
"""`nvidia-smi` takes seconds where no persistence daemon runs; a hung driver must not hang the check."""
IMPORT_S = 60.0
"""Importing PyTorch from a cold disk."""

FactsOf = Callable[[str, str, Model], ModelFacts]
"""Declared name, path and model (as its engine reads it) -> what is there."""


def plan_pools(declaration: Declaration, settings: Settings, facts_of: FactsOf) -> list[PoolPlan]:
    """Resolve every pool that headrace would run."""
    plans: list[PoolPlan] = []
    for name, pool in declaration.pools.items():
        if pool.is_remote:
            continue
        model = declaration.models[pool.model].for_engine(pool.engine)
        facts, repository = (
            facts_of(pool.model, str(place_of(model, settings)), model),
            repository_of(pool.model, model),
        )
        if not facts.is_here and pool.engine in GPU_ENGINES and (known := find_published(repository)) is not None:
            facts = replace(facts, architecture=known, total_bytes=checkpoint_bytes(known))
        plans.append(PoolPlan(name=name, pool=pool, model=model, repository=repository, facts=facts))
    return plans


def repository_of(name: str, model: Model) -> str:
    """Return the model's name on the Hub, where its source tells it."""
    source = parse_source(model.source) if model.source is not None else None
    return source.repository if isinstance(source, HuggingFaceSource) else name


def ask_machine(settings: Settings, pythons: frozenset[str]) -> Machine:
    """Ask this machine. `pythons`: interpreters of declared engines, asked for version and CUDA build."""
    environ = {**os.environ, "MODELS": str(_existing(settings.cache_dir))}
    texts: dict[str, str] = {}
    for name, line in QUESTIONS.items():
        if (said := _answer(("sh", "-c", line), environ, ANSWER_S)) is not None:
            texts[name] = said
    builds = [_answer((python, "-c", PYTHON_LINE), environ, IMPORT_S) for python in sorted(pythons)]
    texts["engines.txt"] = "\n".join(said for said in builds if said)
    return read_machine(texts)


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.is_dir())


def _answer(argv: tuple[str, ...], environ: dict[str, str], timeout_s: float) -> str | None:
    try:
        ran = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return ran.stdout if ran.returncode == 0 else None


def look_at_model(name: str, path: str, model: Model) -> ModelFacts:
    """Look at a model's files on this machine; one file is hashed where a checksum is declared."""
    try:
        return _look(Path(path), model)
    except OSError as error:
        return ModelFacts(path=path, is_here=True, unread=f"{error.filename or path} cannot be read: {error.strerror}")


def _look(place: Path, model: Model) -> ModelFacts:
    path, texts = str(place), dict[str, str]()
    if place.is_dir():
        files = _files_below(place)
        texts = {one: (place / one).read_text(errors="replace") for one in MODEL_TEXTS if one in files}
        return read_model(path, texts, files=files)
    if not place.is_file():
        return ModelFacts(path=path, is_here=False)
    if model.sha256 is not None:
        with place.open("rb") as file:
            texts["sha256.txt"] = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        gguf = read_gguf(place)
    except UnknownArchitectureError:
        gguf = None
    return read_model(path, texts, files={place.name: place.stat().st_size}, gguf=gguf)


def _files_below(folder: Path) -> dict[str, int]:
    """Sizes of all files; what vanishes or cannot be seen during the walk is left out."""
    files: dict[str, int] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            try:
                status = path.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                files[str(path.relative_to(folder))] = status.st_size
    return files


class CaptureFolder:
    """A capture: texts named as in `questions.QUESTIONS`, and `models/NAME/` for each model that is there."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise OperatorError(
                f"{folder} is no folder of captured answers",
                hint="Write one with `headrace check --capture-script | sh` on the machine in question.",
            )
        self._folder = folder

    def machine(self) -> Machine:
        texts = {name: text for name in (*QUESTIONS, "engines.txt") if (text := self._text(name)) is not None}
        return replace(read_machine(texts), is_captured=True)

    def facts_of(self, name: str, path: str, model: Model) -> ModelFacts:
        folder = self._folder / "models" / name
        if not folder.is_dir():
            return ModelFacts(path=path, is_here=False)
        names = (*MODEL_TEXTS, "sha256.txt")
        texts = {one: text for one in names if (text := self._text(f"models/{name}/{one}")) is not None}
        return read_model(path, texts, files=read_files(self._text(f"models/{name}/files.txt") or ""))

    def _text(self, name: str) -> str | None:
        path = self._folder / name
        return path.read_text(errors="replace") if path.is_file() else None


def script_for(declaration: Declaration, settings: Settings) -> str:
    """Return the script that captures a machine for `declaration`."""
    models: dict[str, str] = {}
    for pool in declaration.pools.values():
        if not pool.is_remote:
            model = declaration.models[pool.model].for_engine(pool.engine)
            models[pool.model] = str(place_of(model, settings))
    python = next(
        (pool.options.runtime.python for pool in declaration.pools.values() if pool.options.runtime.python), None
    )
    return capture_script(models, models_folder=str(settings.cache_dir), python=python or "python3")
