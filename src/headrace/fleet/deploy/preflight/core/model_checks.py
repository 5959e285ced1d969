"""The model's files: complete, whole, with tokenizer and template, and without code that nobody has read."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.preflight.core.finding import Finding, fail, ok, warn
from headrace.fleet.deploy.preflight.core.machine import PoolPlan
from headrace.sizing.memory_plan import GIB

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "tiktoken.model")
"""Any of these is a tokenizer. Source: what transformers and vLLM load."""
COMPLETE_RATIO = 0.999
"""Files hold headers beside the tensors that the index counts, so they are never smaller."""


def check_model(plan: PoolPlan) -> Iterator[Finding]:
    """Yield what is wrong with the model's files."""
    facts = plan.facts
    if not facts.is_here:
        yield ok("model-files", f"not here yet: fetched at the first start to {facts.path}")
        return
    if facts.unread and not facts.files:
        yield fail("model-files", facts.unread, needed="files that this user can read", remedy="See their permissions.")
        return
    yield from _checksum(plan)
    if plan.pool.engine is EngineKind.LLAMACPP:
        return
    if facts.unread:
        yield warn("model-config", facts.unread, remedy="Memory and heads are not checked for it.")
    yield from _files(plan)
    yield from _tokenizer(plan)
    yield from _remote_code(plan)


def _checksum(plan: PoolPlan) -> Iterator[Finding]:
    if plan.model.sha256 is None:
        return
    if plan.facts.sha256 is None:
        yield warn("checksum", "not computed", needed=f"sha256 {plan.model.sha256}")
    elif plan.facts.sha256 != plan.model.sha256:
        yield fail(
            "checksum",
            f"sha256 {plan.facts.sha256}",
            needed=f"{plan.model.sha256} (models.{plan.pool.model}.sha256)",
            remedy=f"Delete {plan.facts.path} and fetch it again (headrace models --fetch), or correct the "
            "declaration if the file was meant to change.",
        )
    else:
        yield ok("checksum", f"sha256 {plan.facts.sha256[:12]} as declared")


def _files(plan: PoolPlan) -> Iterator[Finding]:
    facts = plan.facts
    missing = [name for name in facts.shards if name not in facts.files]
    remedy = f"Fetch the model again into {facts.path}: headrace models --fetch, or huggingface-cli download."
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        seen = f"{len(missing)} of {len(facts.shards)} shards missing: {', '.join(missing[:3])}{more}"
        yield fail("model-files", seen, needed="every file that model.safetensors.index.json names", remedy=remedy)
    elif facts.weight_bytes is None:
        yield fail("model-files", f"no weights in {facts.path}", needed="safetensors files", remedy=remedy)
    elif facts.total_bytes is not None and facts.weight_bytes < facts.total_bytes * COMPLETE_RATIO:
        yield fail(
            "model-files",
            f"{facts.weight_bytes / GIB:.2f} GiB of weights",
            needed=f"{facts.total_bytes / GIB:.2f} GiB, as the index says: a file is cut off",
            remedy=remedy,
        )
    else:
        yield ok("model-files", f"{facts.weight_bytes / GIB:.1f} GiB in {max(1, len(facts.shards))} files")


def _tokenizer(plan: PoolPlan) -> Iterator[Finding]:
    facts = plan.facts
    if not any(name in facts.files for name in TOKENIZERS):
        yield fail(
            "tokenizer",
            f"none in {facts.path}",
            needed=f"one of {', '.join(TOKENIZERS[:3])}",
            remedy="Fetch the repository's other files too; a folder of weights alone does not serve.",
        )
        return
    yield ok("tokenizer", "there")
    if not plan.pool.embeddings and not facts.has_own_template and plan.model.chat_template is None:
        yield warn(
            "chat-template",
            "none in tokenizer_config.json or chat_template.jinja",
            needed="one, for /v1/chat/completions",
            remedy=f"Set models.{plan.pool.model}.chat_template: ${{file:template.jinja}}.",
        )


def _remote_code(plan: PoolPlan) -> Iterator[Finding]:
    facts, model = plan.facts, plan.model
    if model.trust_remote_code:
        yield ok("remote-code", f"trusted at commit {str(model.reviewed_revision)[:12]}, which somebody has read")
    elif facts.has_remote_code and facts.architecture is not None and facts.architecture.is_assumed:
        yield fail(
            "remote-code",
            f"config.json names Python code (auto_map), and {facts.architecture.family} is of no family known here",
            needed="the engine's own support, or code that somebody has read",
            remedy=f"Read the Python files at a commit, then set models.{plan.pool.model}.trust_remote_code: true and "
            "reviewed_revision to it.",
        )
