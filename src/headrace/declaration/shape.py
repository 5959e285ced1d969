"""The base of every section of headrace.yaml: unknown keys refused, values frozen, strict types."""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.config import JsonDict


class Section(BaseModel):
    """One mapping of headrace.yaml. `Field(description=...)` is the documentation of docs/settings.md.

    A field whose change cannot be applied by a reload carries `json_schema_extra=RESTART`, one that holds a secret
    SECRET, one that names a file PATH.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True, allow_inf_nan=False
    )


RESTART: JsonDict = {"x-restart": True}
"""Marks a key whose change needs `headrace down` and `headrace up`."""

SECRET: JsonDict = {"x-secret": True}
"""Marks a key that holds a secret: only ${env:} or ${file:} in the file, and never shown again."""

SECRET_NAMES: JsonDict = {"x-secret-names": True}
"""Marks a mapping whose members hold a secret where their name says so."""

_SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_|$)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Tell whether an environment variable of this name is likely to hold a secret, such as HF_TOKEN."""
    return _SECRET_NAME.search(name) is not None


PATH: JsonDict = {"x-path": True}
"""Marks a key that names a file: relative ones are resolved against the declaration's folder."""

AS_ABOVE: JsonDict = {"x-as-above": True}
"""Marks a section whose keys docs/settings.md has listed already."""

HIDDEN = "(hidden)"
"""What is shown in place of a secret."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$")]
"""Name of a model, pool or tenant: it becomes a metric label and part of ids, so it is short and plain."""
