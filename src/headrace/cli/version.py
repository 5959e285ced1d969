"""`headrace version`: what is installed, for bug reports."""

import platform
from importlib import metadata

from headrace import __version__
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, table

app = verb_app()

COMPONENTS = ("uvloop", "httptools", "msgspec", "pydantic", "sqlalchemy", "starlette", "xllamacpp", "gguf")
"""Libraries whose version matters when a problem is looked into."""


@app.command(epilog="Example: headrace version --json")
def version(as_json: JsonOption = False) -> None:
    """Print the versions of headrace, Python and the libraries it stands on."""
    versions = {"headrace": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for name in COMPONENTS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    emit("version", versions, as_json=as_json, human=lambda: table(("component", "version"), versions.items()))
