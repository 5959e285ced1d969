"""Joins the replicas to the model store: one fetch per model however many replicas wait, progress in words."""

from collections.abc import Callable
from pathlib import Path

from headrace.declaration.model import Model
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.models import ModelFetchError, ModelStore, describe
from headrace.fleet.deploy.replica_plan import ReplicaPlan


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
