"""What the bytes of an engine's KV depend on, and whether two engines can hand it over.

Equal must be: engine and version, model and revision, KV number format, layout; block size, pipeline stages and
tensor-parallel sizes by the engine's rules. What is declared: `declared_shape`; what an engine says: `self_report.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from headrace.declaration.handover_plan import HandoverPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import FitRules, TensorRule

AUTO = "auto"
WIDE_DTYPES = frozenset({"bfloat16", "float16", "float32"})
"""What `auto`, the format of the model's own numbers, mostly is: it may be any of these, and nothing narrower."""
DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
"""Other words for the same. Source: the --help texts of vLLM 0.32.0 and SGLang 0.5.23."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What an engine's KV looks like. None: not known, which fits everything."""

    engine: EngineKind
    version: str | None = None
    model: str | None = None
    revision: str | None = None
    kv_dtype: str | None = None
    block_tokens: int | None = None
    layout: str | None = None
    """The engine's own word, such as vLLM's HND."""
    tensor: int | None = None
    pipeline: int | None = None
    role: str | None = None
    """That the engine was started with, where engines have one: prefill, decode, or null for neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownShape:
    """One engine's KV as its pool declares it, and as the engine itself says."""

    declared: KvShape
    told: KvShape | None = None
    """None: it was not asked, or does not say."""

    @property
    def is_measured(self) -> bool:
        """Whether the engine has said what it is; without a version nothing is sure."""
        return self.told is not None and self.told.version is not None


EQUAL_MEMBERS = ("engine", "version", "model", "revision", "kv_dtype", "layout")
MEMBERS = tuple(each.name for each in fields(KvShape))


def find_mismatch(prefill: KvShape, decode: KvShape, rules: FitRules) -> str | None:
    """Return why the two cannot hand KV over, as words for `kv_layout_mismatch`; None: nothing speaks against it."""
    for name in EQUAL_MEMBERS:
        left, right = getattr(prefill, name), getattr(decode, name)
        if left is not None and right is not None and left != right and not (name == "kv_dtype" and _may(left, right)):
            return f"{name} is {left} at prefill and {right} at decode"
    return next(_unlike_sizes(prefill, decode, rules), None) or _wrong_role(prefill, decode)


def find_known_mismatch(prefill: KnownShape, decode: KnownShape, rules: FitRules) -> str | None:
    """The same of two engines of which some is declared and some told. A member counts as told where both have told it;
    else as both pools declare it, since one engine's word says nothing about the other's default."""
    if prefill.told is None or decode.told is None:
        return find_mismatch(prefill.declared, decode.declared, rules) or _wrong_role(
            prefill.told or prefill.declared, decode.told or decode.declared
        )
    left: dict[str, object] = {}
    right: dict[str, object] = {}
    for name in MEMBERS:
        ours, theirs = getattr(prefill.told, name), getattr(decode.told, name)
        if (ours is None or theirs is None) and name != "role":
            ours, theirs = getattr(prefill.declared, name), getattr(decode.declared, name)
        left[name], right[name] = ours, theirs
    return find_mismatch(KvShape(**left), KvShape(**right), rules)  # pyright: ignore[reportArgumentType] # by name


def declared_shape(plan: HandoverPlan, engine: EngineKind, model: str) -> KvShape:
    """Return what a pool declares of it; version and layout are the engine's own affair."""
    return KvShape(
        engine=engine,
        model=plan.source or model,
        kv_dtype=plan.kv_dtype,
        tensor=plan.tensor,
        pipeline=plan.pipeline,
    )


def _may(left: str, right: str) -> bool:
    """Whether two KV number formats may be the same under two names."""
    one, other = DTYPE_NAMES.get(left, left), DTYPE_NAMES.get(right, right)
    return one == other or (one == AUTO and other in WIDE_DTYPES) or (other == AUTO and one in WIDE_DTYPES)


def _unlike_sizes(prefill: KvShape, decode: KvShape, rules: FitRules) -> Iterator[str]:
    left, right = prefill.block_tokens, decode.block_tokens
    if rules.needs_equal_blocks and left is not None and right is not None and left != right:
        yield f"block_tokens is {left} at prefill and {right} at decode"
    left, right = prefill.pipeline, decode.pipeline
    if left is not None and right is not None and left != right and not (rules.may_join_stages and right == 1):
        yield f"pipeline is {left} at prefill and {right} at decode"
    left, right = prefill.tensor, decode.tensor
    if left is None or right is None or left == right:
        return
    said = f"tensor is {left} at prefill and {right} at decode: {prefill.engine} needs"
    if rules.tensor is TensorRule.EQUAL:
        yield f"{said} them equal"
    elif max(left, right) % min(left, right):
        yield f"{said} one to divide the other"


def _wrong_role(prefill: KvShape, decode: KvShape) -> str | None:
    for wanted, shape in (("prefill", prefill), ("decode", decode)):
        if shape.role is not None and shape.role != wanted:
            return f"role is {shape.role} at an engine whose pool has the role {wanted}"
    return None
