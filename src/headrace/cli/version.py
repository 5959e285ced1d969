"""`headrace version`: what is installed, for bug reports."""

import platform
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

from headrace import __version__
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, table

app = verb_app()

Versions = dict[str, str]
"""Version by component; what `headrace version --json` prints."""

COMPONENTS = ("uvloop", "httptools", "msgspec", "pydantic", "sqlalchemy", "starlette", "xllamacpp", "gguf")
"""Libraries whose version matters when a problem is looked into."""


def hot_path() -> str:
    """Whether this installation's gateway was compiled (docs/decisions/0008)."""
    found = find_spec("headrace.gateway.pipeline")
    place = found.origin if found is not None else None
    return "compiled" if place is not None and place.endswith(tuple(EXTENSION_SUFFIXES)) else "pure Python"


@app.command(epilog="Example: headrace version --json")
def version(as_json: JsonOption = False) -> None:
    """Print the versions of headrace, Python and the libraries it stands on."""
    versions: Versions = {"headrace": __version__, "python": platform.python_version(), "platform": platform.platform()}
    versions["hot path"] = hot_path()
    for name in COMPONENTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    emit("version", versions, as_json=as_json, human=lambda: table(("component", "version"), versions.items()))
