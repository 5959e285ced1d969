"""Joins the replicas to the model store: one fetch per model however many replicas wait, progress in words."""

import re
from collections.abc import Callable
from pathlib import Path

from headrace.declaration.model import Model
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.models import FetchPhase, FetchProgress, ModelFetchError, ModelStore
from headrace.fleet.deploy.replica_plan import ReplicaPlan

CHECKSUM = re.compile(r"[0-9a-f]{64}")
"""Files of the cache are named by theirs; people need no more of it than tells two apart."""


class ModelFetch:
    """`replica_runner.FetchFn` over the model store, whose own lock keeps two fetches of one file apart."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store

    async def __call__(self, plan: ReplicaPlan, model: Model, report: Callable[[str], None]) -> Path:
        if model.source is None:
            raise OperatorError(
                f"model {plan.shape.model_name} has no source, but pool {plan.pool} is to run it",
                hint=f"Give models.{plan.shape.model_name}.source, or give the pool endpoints.",
            )
        try:
            return await self._store.ensure(
                model.source, model.sha256, model.requantize, progress=lambda progress: report(describe(progress))
            )
        except ModelFetchError as error:
            raise OperatorError(str(error)) from error


def describe(progress: FetchProgress) -> str:
    """Put a report into one line, such as "downloading model.gguf: 41 % of 98.4 MB, 12.0 MB/s"."""
    text = f"{progress.phase.value} {CHECKSUM.sub(lambda found: found[0][:12], progress.what)}".strip()
    if progress.phase in (FetchPhase.DOWNLOADING, FetchPhase.EXTRACTING, FetchPhase.VERIFYING, FetchPhase.CONVERTING):
        if progress.total_bytes:
            text += f": {progress.done_bytes / progress.total_bytes:.0%} of {progress.total_bytes / 1e6:.1f} MB"
        elif progress.done_bytes:
            text += f": {progress.done_bytes / 1e6:.1f} MB"
        if progress.rate_bytes_per_s:
            text += f", {progress.rate_bytes_per_s / 1e6:.1f} MB/s"
    return f"{text} ({progress.note})" if progress.note else text
