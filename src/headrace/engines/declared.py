"""A declaration against its engines: what a pool declares that its engine lacks, before anything is started.

Given to `declaration.load` as its `checks`, so that each finding gets file, line and value.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headrace.declaration.finding import Finding
from headrace.declaration.handover_plan import compile_handover
from headrace.declaration.model import Declaration, Model, Pool
from headrace.declaration.model_source import FileSource, HuggingFaceSource, PypiSource, parse_source
from headrace.declaration.problem import KeyPath, Severity
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import OptionProblem, ReplicaSpec
from headrace.engines.handover import find_handover_words
from headrace.engines.kv_shape import KvShape, declared_shape, find_mismatch
from headrace.engines.names import explain
from headrace.engines.registry import DRIVERS, driver_for

STAND_IN = Path("/models/not-fetched-yet")
STAND_IN_PORT = 8000

FOLDER_ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)
"""Engines that read a folder of Hugging Face files; llama.cpp reads one GGUF file."""


def lint_engines(declaration: Declaration) -> Iterator[Finding]:
    """Yield what the engines of the pools cannot do; of those that run elsewhere, what the gateway cannot do there."""
    for name, pool in declaration.pools.items():
        model = declaration.models.get(pool.model)
        driver = driver_for(pool.engine)
        if pool.is_remote and pool.options.prefix_cache.tenant_isolation and not driver.dialect.salted_paths:
            yield _finding(pool, ("pools", name), _no_isolation(pool))
        if pool.is_remote or model is None:
            continue
        for problem in driver.check_options(stand_in_spec(name, pool, model)):
            yield _finding(pool, ("pools", name), problem)
        yield from _old_flags(pool, ("pools", name))
        if pool.threads is not None and "threads" not in driver.options:
            message = f"is an option that {pool.engine.value} does not have"
            problem = OptionProblem(key=("threads",), message=message, lacks="threads")
            yield _finding(pool, ("pools", name), problem)
        yield from _source_form(pool, model)
        yield from _devices(("pools", name), pool)
    yield from _handovers(declaration)


def engines_with(option: str) -> tuple[str, ...]:
    """Return the engines that have `option`, such as `memory.kv_bytes`."""
    return tuple(kind.value for kind in DRIVERS if option in driver_for(kind).options)


def say_problem(problem: OptionProblem) -> str:
    """Write a problem and its remedy in one line, without the key."""
    return " ".join(part for part in (problem.message + ".", problem_hint(problem)) if part)


def problem_hint(problem: OptionProblem) -> str | None:
    """What to do, with the engines that have the option."""
    if problem.lacks is None:
        return problem.hint
    engines = engines_with(problem.lacks)
    having = f"Engines that have it: {', '.join(engines)}." if engines else "No engine has it in the versions known."
    return f"{having} {problem.hint}" if problem.hint else f"{having} Take it out, or use per_engine."


def stand_in_spec(name: str, pool: Pool, model: Model) -> ReplicaSpec:
    """Return the spec of a pool's first replica with stand-ins for what only the machine knows."""
    form = model.for_engine(pool.engine)
    options = pool.options
    has_draft = options.speculative is not None and options.speculative.model is not None
    return ReplicaSpec(
        pool=name,
        replica=0,
        served_model=pool.served_model or pool.model,
        model_path=STAND_IN,
        host="127.0.0.1",
        port=pool.port or STAND_IN_PORT,
        context_tokens=form.context_tokens,
        threads=pool.threads or 1,
        embeddings=pool.embeddings,
        slot_dir=STAND_IN,
        file_dir=STAND_IN,
        stop_s=pool.stop_s,
        options=options,
        chat_template=form.chat_template,
        draft_path=STAND_IN if has_draft else None,
        trust_remote_code=form.trust_remote_code,
        weight_bytes=form.weight_bytes or 1,  # what the files have is known once they are here
    )


def _handovers(declaration: Declaration) -> Iterator[Finding]:
    """Refuse prefill pools whose KV no decode pool of the model can take."""
    shapes: dict[str, tuple[str, str, KvShape]] = {}
    for name, pool in declaration.pools.items():
        plan = compile_handover(pool, declaration.models.get(pool.model))
        if plan is not None:
            shapes[name] = (pool.model, plan.role, declared_shape(plan, pool.engine, pool.model))
    for name, (model, role, shape) in shapes.items():
        words = find_handover_words(shape.engine)
        takers = [
            (taker, taken)
            for taker, (other, others_role, taken) in shapes.items()
            if other == model and taker != name and others_role != "prefill"
        ]
        if role == "decode" or not takers or words is None:
            continue
        whys = [f"{taker}: {find_mismatch(shape, taken, words.fit_rules)}" for taker, taken in takers]
        if not any(why.endswith(": None") for why in whys):
            yield Finding(
                path=("pools", name, "disaggregation"),
                severity=Severity.ERROR,
                message=f"kv_layout_mismatch: no pool can take its KV ({'; '.join(whys)})",
                hint="Give prefill and decode pools of a model the same engine, model, parallel and memory.kv_dtype.",
            )


def _no_isolation(pool: Pool) -> OptionProblem:
    """The one option that the gateway carries out, and so holds for engines that run elsewhere too."""
    return OptionProblem(
        key=("prefix_cache", "tenant_isolation"),
        message=f"is not possible on {pool.engine.value}, which has no cache_salt",
        lacks="prefix_cache.tenant_isolation",
    )


def _finding(pool: Pool, path: KeyPath, problem: OptionProblem) -> Finding:
    """Point at the key where it stands: in the pool, or in its section for the engine."""
    special = pool.per_engine.get(pool.engine)
    is_special = special is not None and problem.key[0] in special.model_fields_set
    place = (*path, "per_engine", pool.engine.value) if is_special else path
    return Finding(
        path=(*place, *problem.key),
        severity=Severity.ERROR,
        message=problem.message,
        hint=problem_hint(problem),
    )


def _old_flags(pool: Pool, path: KeyPath) -> Iterator[Finding]:
    """Warn of flags that newer versions no longer have; the installed one may still."""
    for number, word in enumerate(pool.options.extra_args):
        if word.startswith("-") and (explained := explain(word, pool.engine)) is not None:
            hint = f"`headrace engine verify {pool.engine.value} --config FILE` shows whether yours has it."
            problem = OptionProblem(key=("extra_args", number), message=f"is an old flag: {explained}", hint=hint)
            yield replace(_finding(pool, path, problem), severity=Severity.WARNING)


def _source_form(pool: Pool, model: Model) -> Iterator[Finding]:
    form = model.for_engine(pool.engine)
    if form.source is None:
        return
    try:
        source = parse_source(form.source)
    except ValueError:
        return  # declaration.lint says it
    is_special = pool.engine in model.per_engine
    path: KeyPath = ("models", pool.model, *(("per_engine", pool.engine.value) if is_special else ()), "source")
    is_folder = isinstance(source, HuggingFaceSource) and source.file is None
    is_file = isinstance(source, PypiSource) or (isinstance(source, HuggingFaceSource) and source.file is not None)
    if isinstance(source, FileSource):
        is_folder, is_file = source.path.is_dir(), source.path.is_file()
    if is_file and pool.engine in FOLDER_ENGINES:
        message = f"is one file, but {pool.engine.value} reads a folder of Hugging Face files"
        hint = f"Write hf:ORG/NAME@REVISION without a #file, also as models.{pool.model}.per_engine."
        yield Finding(path=path, severity=Severity.ERROR, message=message, hint=hint)
    if is_folder and pool.engine is EngineKind.LLAMACPP:
        message = "is a folder, but llamacpp reads one GGUF file"
        hint = f"Name it: hf:ORG/NAME@REVISION#file.gguf, also as models.{pool.model}.per_engine.llamacpp."
        yield Finding(path=path, severity=Severity.ERROR, message=message, hint=hint)


def _devices(path: KeyPath, pool: Pool) -> Iterator[Finding]:
    is_on_gpu = pool.engine in FOLDER_ENGINES and pool.options.runtime.device == "gpu"
    if is_on_gpu and pool.replica_count > 1:
        yield Finding(
            path=(*path, "replicas"),
            severity=Severity.ERROR,
            message="would all start on the same GPUs: headrace does not choose devices",
            hint="Give each replica a pool of its own with runtime: {env: {CUDA_VISIBLE_DEVICES: ...}}, or raise "
            "parallel.data.",
        )
