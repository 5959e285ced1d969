"""Declarations for tests of `headrace render`: every engine on one GPU, on four, on two nodes, and disaggregated."""

from pathlib import Path

from headrace.declaration.problem import DeclarationError
from headrace.fleet.deploy.render.request import make_request
from headrace.fleet.deploy.render.targets import Target, joined_text, render

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "examples" / "qwen2.5-32b.yaml"
ENGINES = ("vllm", "sglang", "tensorrt-llm", "llamacpp")
GPU_ENGINES = ENGINES[:3]
SHAPES = ("single", "tensor-4", "multi-node", "disaggregated")

HUB = "hf:acme/chat-8b@0123456789abcdef0123456789abcdef01234567"
GGUF = "hf:acme/chat-8b-gguf@89abcdef0123456789abcdef0123456789abcdef#chat-8b-q4.gguf"
GGUF_SHA256 = "0123456789abcdef" * 4

MODEL = f"""\
version: 1
models:
  chat-8b:
    source: {HUB}
    context_tokens: 8192
    weight_bytes: 16000000000
    per_engine:
      llamacpp: {{source: "{GGUF}", sha256: {GGUF_SHA256}, weight_bytes: 5000000000}}
"""
"""No such model: nothing here fetches it."""

POOL = """\
  {name}:
    model: chat-8b
    engine: {engine}
    port: {port}
    stop_s: 60
    runtime: {{env: {{HF_TOKEN: "${{env:HUB_TOKEN}}"}}}}
    placement: {placement}
{more}"""


def declaration_text(engine: str, shape: str) -> str:
    """Return the declaration of one case."""
    pools = _pools(engine, shape)
    return MODEL + "pools:\n" + "".join(pools)


def _pools(engine: str, shape: str) -> list[str]:
    gpus = ", gpus: 1" if engine == "llamacpp" else ""
    if shape == "single":
        return [_pool("chat", engine, placement=f"{{replicas: 2{gpus}}}")]
    if shape == "tensor-4":
        return [_pool("chat", engine, more="    parallel: {tensor: 4}\n")]
    if shape == "multi-node":
        more = "    parallel: {tensor: 8, pipeline: 2}\n" if engine != "llamacpp" else ""
        count = ", gpus: 16" if engine == "llamacpp" else ""
        return [_pool("chat", engine, placement=f"{{gpus_per_node: 8{count}}}", more=more)]
    roles = ("prefill", "decode")
    return [
        _pool(f"chat-{role}", engine, port=30000 + number, more=f"    disaggregation: {{role: {role}}}\n")
        for number, role in enumerate(roles)
    ]


def _pool(name: str, engine: str, *, port: int = 30000, placement: str = "{}", more: str = "") -> str:
    return POOL.format(name=name, engine=engine, port=port, placement=placement, more=more)


def rendered_text(target: Target, path: Path, overrides: tuple[str, ...] = ()) -> str:
    """Return what is rendered, all files as one text; where it is refused, why."""
    try:
        request, _ = make_request(path, environ={}, overrides=overrides)
    except DeclarationError as error:
        return f"refused:\n{str(error).replace(str(path), path.name)}\n"
    rendered = render(target, request)
    if rendered.errors:
        return "refused:\n" + "".join(f"{note}\n" for note in rendered.errors)
    return joined_text(target, rendered)


def case_names() -> list[tuple[str, str]]:
    """Return engine and shape of every case."""
    return [(engine, shape) for engine in ENGINES for shape in SHAPES]
