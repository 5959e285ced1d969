"""Model files: where they come from (`sources`), how they are fetched, checked, converted and kept (`ModelStore`)."""

from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, FetchProgress, describe
from headrace.fleet.deploy.models.store import ModelStore

__all__ = ["FetchPhase", "FetchProgress", "ModelFetchError", "ModelStore", "describe"]
