"""`headrace schema`: the JSON Schema of headrace.yaml and of what the verbs print with --json."""

from typing import Annotated

import typer

from headrace.cli.options import verb_app
from headrace.cli.output import json_text
from headrace.declaration.json_schema import declaration_schema

app = verb_app()


@app.command(epilog="Example: headrace schema > headrace.schema.json")
def schema(
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to FILE.")] = None,
) -> None:
    """Print the JSON Schema of headrace.yaml, with descriptions, units, defaults and bounds.

    An editor with a YAML language server completes and checks the file after this first line:
    `# yaml-language-server: $schema=headrace.schema.json`
    """
    text = json_text(declaration_schema())
    if output is None:
        print(text)
    else:
        with open(output, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
