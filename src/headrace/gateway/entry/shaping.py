"""Requests that must be put into each engine's own words: structured output, continuations, template arguments.

Off the common path: only requests with a shaped field, or with a last message of the assistant's, come here. What no
pool of the model can do is refused by name, with the engines that could; pools that cannot are not routed to.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headrace.declaration.gateway_plan import PoolPlan
from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, Rewrite
from headrace.engines.constraint_reader import read_constraint
from headrace.engines.registry import DRIVERS, driver_for
from headrace.engines.structured_output import CannotSayError, Constraint
from headrace.gateway.endpoints.serving import ServedModel
from headrace.gateway.entry.continuations import Continuation, read_continuation, write_continuation
from headrace.gateway.entry.template_arguments import check_template_arguments

Fields = Mapping[str, msgspec.Raw]
NULL = msgspec.Raw(b"null")
_BACKEND_FIELDS = ("guided_decoding_backend", "guided_whitespace_pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a request must be put into the engine's words."""

    api: ApiDialect
    constraint: Constraint | None
    continuation: Continuation | None


class Shaper:
    """Shapes requests by one gateway plan. Pure; built once per plan."""

    def __init__(self, allow_gated: tuple[str, ...]) -> None:
        self._allowed = frozenset(allow_gated)

    def shape(
        self, fields: Fields, api: ApiDialect, path: str, model: ServedModel, *, is_stream: bool
    ) -> dict[str, Rewrite] | None:
        """Return what to change, by pool; None where nothing is to be changed for any.

        Raises: RequestError INVALID_REQUEST for what contradicts itself, UNSUPPORTED_PARAMETER for what no pool can do.
        """
        for name in _BACKEND_FIELDS:
            if fields.get(name, NULL) != NULL:
                message = f"field {name} is not taken from callers; the pool declares structured_output.backend"
                raise RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=name)
        if "chat_template_kwargs" in fields:
            is_allowed = "chat_template_kwargs" in self._allowed
            check_template_arguments(fields["chat_template_kwargs"], is_allowed=is_allowed)
        asked = Asked(
            api=api,
            constraint=read_constraint(fields, api),
            continuation=read_continuation(fields, api),
        )
        if asked.constraint is None and asked.continuation is None:
            return None
        return self._by_pool(asked, fields, path, model, is_stream=is_stream)

    def _by_pool(
        self, asked: Asked, fields: Fields, path: str, model: ServedModel, *, is_stream: bool
    ) -> dict[str, Rewrite] | None:
        pools = model.pools_for(path)
        rewrites: dict[str, Rewrite] = {}
        reasons: dict[str, str] = {}
        for pool in pools:
            try:
                rewrites[pool.name] = self._rewrite(asked, fields, pool, is_stream=is_stream)
            except CannotSayError as error:
                reasons[pool.engine] = str(error)
        if not rewrites:
            raise self._refusal(asked, reasons, path, model)
        is_untouched = all(rewrite == UNTOUCHED for rewrite in rewrites.values())
        return None if is_untouched and len(rewrites) == len(pools) else rewrites

    def _rewrite(self, asked: Asked, fields: Fields, pool: PoolPlan, *, is_stream: bool) -> Rewrite:
        """Raises: CannotSayError."""
        dialect = driver_for(EngineKind(pool.engine)).dialect
        written: dict[str, object] = {}
        dropped: set[str] = set()
        echo: str | None = None
        if asked.continuation is not None:
            words = write_continuation(
                asked.continuation,
                dialect.continuation,
                asked.api,
                fields,
                is_stream=is_stream,
                is_unproved_allowed="continue_final_message" in self._allowed,
                is_constrained=asked.constraint is not None,
            )
            written |= words.added
            dropped |= words.dropped
            echo = words.echo
        constraint = asked.constraint
        if constraint is not None:
            if not dialect.enforces_structured_output and pool.structured_output_backend is None:
                raise CannotSayError(
                    "ignores it unless a backend is switched on; where one is, the pool declares it as "
                    "structured_output.backend"
                )
            words = dialect.structured(constraint, asked.api)
            if not (constraint.is_usual and words.keys() == {constraint.field}):
                written |= words
                dropped.add(constraint.field)
        if not written and not dropped and echo is None:
            return UNTOUCHED
        return Rewrite(
            dropped=frozenset(dropped),
            added={name: msgspec.Raw(msgspec.json.encode(value)) for name, value in written.items()},
            echo=echo,
        )

    def _refusal(self, asked: Asked, reasons: Mapping[str, str], path: str, model: ServedModel) -> RequestError:
        constraint, continuation = asked.constraint, asked.continuation
        if constraint is not None:
            name, what = constraint.field, f"{constraint.shown} ({constraint.kind.value})"
        else:
            name, what = continuation.field if continuation else "messages", "continuing the last message"
        why = "; ".join(f"{engine} {reason}" for engine, reason in sorted(reasons.items()))
        able = ", ".join(sorted(kind.value for kind in DRIVERS if self._could(asked, kind, path)))
        message = (
            f"{what} is not possible for model {model.name!r} at {path}: {why}"
            + (f". Engines that could: {able}" if able else "")
        )  # fmt: skip
        return RequestError(ErrorCode.UNSUPPORTED_PARAMETER, message, param=name)

    def _could(self, asked: Asked, kind: EngineKind, path: str) -> bool:
        """Whether an engine, set up well, has words for the constraint."""
        dialect = driver_for(kind).dialect
        if asked.constraint is None or asked.continuation is not None or path not in dialect.paths:
            return False
        try:
            dialect.structured(asked.constraint, asked.api)
        except CannotSayError:
            return False
        return kind is not EngineKind.OPENAI


UNTOUCHED = Rewrite()
"""The engine understands the request as the caller wrote it."""
