"""`headrace engine`: what the drivers know of each engine, and what they would start. One small module a subcommand."""

from headrace.cli.engine_caps import caps
from headrace.cli.engine_launch import launch
from headrace.cli.engine_list import list_engines
from headrace.cli.engine_restart import restart
from headrace.cli.engine_show import show
from headrace.cli.engine_verify import verify
from headrace.cli.options import verb_app

app = verb_app()


@app.callback(epilog="Example: headrace engine launch --config headrace.yaml")
def engine() -> None:
    """Show what headrace knows of the engines and how it would start them; restart one that it runs."""


app.command("launch", epilog="Example: headrace engine launch --set pools.main.engine=sglang")(launch)
app.command("verify", epilog="Example: headrace engine verify vllm --python /srv/vllm/bin/python")(verify)
app.command("list", epilog="Example: headrace engine list")(list_engines)
app.command("show", epilog="Example: headrace engine show sglang")(show)
app.command(
    "caps", epilog="Example: headrace engine caps --model Qwen/Qwen2.5-32B-Instruct --gpu a100 --precision fp8"
)(caps)
app.command("restart", epilog="Example: headrace engine restart default/0")(restart)
