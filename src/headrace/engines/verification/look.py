"""Looking at an installed engine: its --help, its version, its page of metrics. The shell around `compare`.

Nothing here generates a token or reads TensorRT-LLM's /metrics, which reading empties.
"""

import os
import re
import subprocess
from pathlib import Path

import httpx
import msgspec

from headrace.domain.operator_error import OperatorError
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.load import iter_names
from headrace.engines.metrics import MetricTable
from headrace.engines.verification.commands import HelpCommand
from headrace.engines.verification.compare import Look
from headrace.engines.verification.help_text import read_help

HELP_TIMEOUT_S = 300.0
"""vLLM and SGLang import torch before they print a line; on a loaded machine that takes minutes."""

ASK_TIMEOUT_S = 10.0
_BUILD = re.compile(r"\(build ([1-9]\d*)|\bversion: (\d+) \(")
"""llama.cpp counts builds; newer ones say a version as well."""

_VERSION = re.compile(r"\b\d+(?:\.\d+)+[\w.+-]*")
_SHOWN_LINES = 3


def look_at_command(command: HelpCommand) -> Look:
    """Run --help and ask for the version. Raises: OperatorError where it cannot be run or shows no flag."""
    shown = " ".join(command.help)
    done = _run(command.help)
    text = done.stdout if len(done.stdout) > len(done.stderr) else done.stderr
    facts = read_help(text)
    if not facts.flags:
        last = "; ".join(line.strip() for line in done.stderr.strip().splitlines()[-_SHOWN_LINES:])
        raise OperatorError(
            f"`{shown}` ended with status {done.returncode} and showed no flags" + (f": {last}" if last else ""),
            hint="Name the environment with --python, the program with --command, or a saved text with --help-file.",
        )
    return Look(help=facts, version=_ask_version(command), origin=shown)


def look_at_help_file(path: Path) -> Look:
    """Read a saved --help. Raises: OperatorError where it has no flag."""
    facts = read_help(_read(path))
    if not facts.flags:
        raise OperatorError(f"{path} has no flags: it is no output of --help")
    return Look(help=facts, origin=str(path))


def look_at_metrics_file(path: Path) -> Look:
    """Read a saved page of metrics. Raises: OperatorError where it has no metric."""
    names = tuple(iter_names(_read(path)))
    if not names:
        raise OperatorError(f"{path} has no metrics: it is no page in Prometheus' text format")
    return Look(metric_names=names, origin=str(path))


def look_at_url(url: str, table: MetricTable) -> Look:
    """Read the metrics of a running engine. Raises: OperatorError where it does not answer with a page of them."""
    root = url.rstrip("/").removesuffix("/v1")
    page_url = root + table.path
    enabled = f"Metrics there: {table.enabled_by}." if table.enabled_by else None
    try:
        with httpx.Client(timeout=ASK_TIMEOUT_S) as client:
            answer = client.get(page_url)
            version = _version_at(client, root)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OperatorError(f"{page_url} does not answer: {error}") from error
    if answer.status_code != 200:
        raise OperatorError(f"{page_url} answered HTTP {answer.status_code}", hint=enabled)
    names = tuple(iter_names(answer.text))
    if not any(name in names for metric in table.metrics for name in metric.names):
        raise OperatorError(f"{page_url} shows none of this engine's metrics: is it another engine?", hint=enabled)
    return Look(metric_names=names, version=version, origin=page_url)


def _run(command: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    # a help as wide as it likes to be: argparse would break long names of groups, but never a flag
    environ = {**os.environ, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    try:
        return subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HELP_TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise OperatorError(f"`{' '.join(command)}` cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise OperatorError(f"`{' '.join(command)}` said nothing for {HELP_TIMEOUT_S:g} s") from error


def _ask_version(command: HelpCommand) -> str | None:
    if not command.version:
        return None
    done = _run(command.version)
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode != 0:
        return None
    if build := _BUILD.search(said):
        return f"b{build[1] or build[2]}"
    if "(build 0" in said:  # built from an archive without its history: the number is not known
        return None
    version = _VERSION.search(said)
    return None if version is None else version[0]


def _version_at(client: httpx.Client, root: str) -> str | None:
    """Ask what vLLM, TensorRT-LLM (/version) and SGLang (/server_info) answer; None where neither does."""
    for path in ("/version", "/server_info"):
        try:
            said = msgspec.json.decode(client.get(root + path).content, type=_Version)
        except (*UNDECODABLE, httpx.HTTPError):
            continue
        if said.version:
            return said.version
    return None


class _Version(msgspec.Struct, frozen=True):
    version: str | None = None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {error.strerror}") from error
