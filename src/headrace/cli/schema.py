"""`headrace schema`: the JSON Schema of headrace.yaml and of what the verbs print with --json."""

from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.options import OutputOption, verb_app
from headrace.cli.output import EXIT_USAGE, fail, json_text
from headrace.cli.text_file import give
from headrace.declaration.json_schema import declaration_schema
from headrace.declaration.nearest import did_you_mean

app = verb_app()

PRINTED = MappingProxyType(
    {
        "audit": "headrace.tenancy.audit:AuditEntry[]",
        "budget": "headrace.tenancy.quota_view:LimitView[]",
        "cache": "headrace.domain.routing_status:RoutingStatus",
        "cache-explain": "headrace.cache_misses.explain:Explanation",
        "cache-misses": "headrace.domain.miss_status:MissStatus",
        "chat": "headrace.cli.chat:Turn",
        "check": "headrace.cli.check:CheckReport",
        "down": "headrace.cli.down:DownReport",
        "engine-caps": "headrace.catalog.compatibility:Verdict[]",
        "engine-launch": "headrace.cli.engine_launch:LaunchLine[]",
        "engine-list": "headrace.cli.engine_list:EngineRow[]",
        "engine-restart": "headrace.control_api.operations:ReplicaStatus",
        "engine-show": "headrace.cli.engine_show:EngineDescription",
        "engine-verify": "headrace.engines.verification:Verification",
        "init": "headrace.cli.init:InitReport",
        "key": "headrace.tenancy.key_view:KeyView",
        "key-created": "headrace.cli.keys:CreatedKey",
        "keys": "headrace.tenancy.key_view:KeyView[]",
        "logs": "headrace.cli.log_tail:LogLine",
        "models": "headrace.cli.models:ModelRow[]",
        "organisation": "headrace.tenancy.governing:EntryView",
        "organisations": "headrace.tenancy.governing:EntryView[]",
        "queue": "headrace.domain.queue_status:QueueStatus[]",
        "quota": "headrace.tenancy.quota_view:LimitView[]",
        "reload": "headrace.control_api.operations:ReloadReport",
        "render": "headrace.cli.render:RenderReport",
        "route": "headrace.domain.routing_status:RouteExplanation",
        "route-advise": "headrace.domain.split_advice:SplitAdvice",
        "status": "headrace.control_api.operations:InstanceStatus",
        "tenant": "headrace.tenancy.governing:EntryView",
        "tenants": "headrace.tenancy.governing:EntryView[]",
        "up": "headrace.cli.up_view:Welcome",
        "usage": "headrace.ledger.usage:UsageReport",
        "usage-verify": "headrace.cli.usage:LedgerVerdict",
        "version": "headrace.cli.version:Versions",
    }
)
"""Name in the envelope of --json (`headrace/<name>/v1`) -> the type of its `data`; `[]` is a list of them."""

DECLARATION = "declaration"

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help=f"{DECLARATION}, or the name that --json prints, headrace/NAME/v1: {', '.join(PRINTED)}.",
        show_default=False,
    ),
]


@app.command(epilog="Example: headrace schema --output headrace.schema.json")
def schema(name: NameArgument = DECLARATION, output: OutputOption = None) -> None:
    """Print the JSON Schema of headrace.yaml, or of what a verb prints with --json.

    An editor with a YAML language server completes and checks the file after this first line:
    `# yaml-language-server: $schema=headrace.schema.json`
    """
    if name != DECLARATION and name not in PRINTED:
        fail(f"there is no schema {name}", hint=did_you_mean(name, [DECLARATION, *PRINTED]), code=EXIT_USAGE)
    text = json_text(declaration_schema() if name == DECLARATION else printed_schema(name))
    give(text + "\n", output)


def printed_schema(verb: str) -> dict[str, Any]:
    """Return the schema of the whole line that `verb` prints."""
    target = PRINTED[verb]
    module, _, attribute = target.removesuffix("[]").partition(":")
    printed: Any = getattr(import_module(module), attribute)
    (shape,), definitions = msgspec.json.schema_components(
        [tuple[printed, ...] if target.endswith("[]") else printed], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"headrace {verb} --json",
        "type": "object",
        "properties": {"schema": {"const": f"headrace/{verb}/v1"}, "data": shape},
        "required": ["schema", "data"],
        "$defs": definitions,
    }
