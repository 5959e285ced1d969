"""`headrace init`: a commented first declaration, fitted to what is found on the machine."""

import asyncio
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, fail
from headrace.cli.text_file import check_folder
from headrace.declaration.load import DEFAULT_FILE, load_text, this_machine
from headrace.declaration.starter import FoundEngine, FoundModel, Surroundings, render_starter
from headrace.fleet.deploy.attach import EndpointUnreachableError, detect_engine
from headrace.whole_file import write_whole

app = verb_app()

USUAL_URLS = ("http://127.0.0.1:8000", "http://127.0.0.1:30000", "http://127.0.0.1:8080")
"""Default ports of vLLM and trtllm-serve, SGLang, and llama-server."""
ASK_TIMEOUT_S = 1.0
ENDPOINT_TIMEOUT_S = 10.0
"""For a URL that the operator named: it may be far away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitReport:
    """What `headrace init --json` prints."""

    file: str
    engines: tuple[FoundEngine, ...]
    gpus: tuple[str, ...]


OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", metavar="URL", help="An engine that already runs; asked for its models.")
]


@app.command(epilog="Example: headrace init --endpoint http://gpu-7:8000")
def init(
    output: OutputOption = Path(DEFAULT_FILE),
    is_forced: ForceOption = False,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a commented first headrace.yaml.

    Asks nothing that it can find out: looks for engines on the usual local ports and for NVIDIA GPUs, and says in the
    file's comments what it found. Never replaces a file without --force.
    """
    if output.exists() and not is_forced:
        fail(f"{output} exists already", hint="Give another --output, or --force to replace it.")
    found = _look_around(endpoint)
    if endpoint is not None and not found.engines:
        fail(f"no engine answers at {endpoint} (asked GET /v1/models)", hint="Start it, or correct the URL.")
    text = render_starter(found)
    load_text(text, path=output, environ=os.environ, is_elsewhere=False, machine=this_machine())
    _write(output, text, is_forced=is_forced)
    result = InitReport(file=str(output), engines=found.engines, gpus=found.gpus)
    emit("init", result, as_json=as_json, human=f"Wrote {output}. Next: headrace check, then headrace up.")


def _look_around(endpoint: str | None) -> Surroundings:
    urls = USUAL_URLS if endpoint is None else (endpoint.rstrip("/").removesuffix("/v1"),)
    timeout_s = ASK_TIMEOUT_S if endpoint is None else ENDPOINT_TIMEOUT_S
    engines = asyncio.run(_find_engines(urls, timeout_s))
    tool = shutil.which("nvidia-smi")
    return Surroundings(
        engines=engines,
        asked=urls,
        gpus=_gpu_names(tool) if tool is not None else (),
        has_gpu_tool=tool is not None,
        threads=os.cpu_count(),
    )


async def _find_engines(urls: tuple[str, ...], timeout_s: float) -> tuple[FoundEngine, ...]:
    answers = await asyncio.gather(*(_find_engine(url, timeout_s) for url in urls))
    return tuple(answer for answer in answers if answer is not None)


async def _find_engine(url: str, timeout_s: float) -> FoundEngine | None:
    """Return the engine at `url`; None for silence, and for a server that is no engine."""
    try:
        found = await detect_engine(url, timeout_s=timeout_s)
    except EndpointUnreachableError:
        return None
    models = tuple(FoundModel(name=name, context_tokens=found.context_tokens.get(name)) for name in found.models)
    return FoundEngine(url=url, engine=found.engine, models=models)


def _gpu_names(tool: str) -> tuple[str, ...]:
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ()
    return tuple(line.strip() for line in said.splitlines() if line.strip())


def _write(output: Path, text: str, *, is_forced: bool) -> None:
    """Write all or nothing; without `is_forced`, never over a file that appeared meanwhile."""
    check_folder(output)
    try:
        write_whole(output, text, mode=0o644, keeps_other=not is_forced)
    except FileExistsError:
        fail(f"{output} exists already", hint="Give another --output, or --force to replace it.")
