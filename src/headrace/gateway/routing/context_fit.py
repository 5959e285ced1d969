"""Which endpoints a request fits into: its input and output against the context that each has, as far as known.

1. Those that hold what it is estimated to need, output limit included.
2. Where none does, those of the longest context that its input may still fit into: an estimate refuses nothing that
   the engine, which counts, would take.
3. Where it cannot fit into any even at the least, it is refused here.
"""

from collections.abc import Iterable, Sequence

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.endpoints.endpoint import Endpoint

MOST_BYTES_PER_TOKEN = 32
"""No prompt has so few tokens as this says. Chosen: English has 4 bytes a token; what vocabularies hold in one token at
most, such as a run of spaces or a Chinese word as JSON escapes, seldom has more than 24."""
BENDS = frozenset({"truncation", "truncate_prompt_tokens", "previous_response_id"})
"""Fields by which an input is cut to what fits, or is more than it looks like."""


def needed_tokens(request: InferenceRequest) -> int:
    """What it is estimated to need of a context: its input, and the output that it asks for."""
    return request.estimated_input_tokens + (request.output_limit_tokens or 1)


def least_context(endpoints: Iterable[Endpoint]) -> int | None:
    """The shortest context of those that are known."""
    known = [one.context_tokens for one in endpoints if one.context_tokens is not None]
    return min(known, default=None)


def longest_context(endpoints: Iterable[Endpoint]) -> int | None:
    """The longest context; None: nobody knows that of one of them."""
    longest = 0
    for one in endpoints:
        context_tokens = one.context_tokens
        if context_tokens is None:
            return None
        longest = max(longest, context_tokens)
    return longest


def fitting(endpoints: Sequence[Endpoint], request: InferenceRequest) -> Sequence[Endpoint]:
    """Return those of the endpoints that it is to go to, by the cases above. One whose context nobody knows is kept."""
    if not is_one_prompt(request):
        return endpoints
    needed = needed_tokens(request)
    enough = [one for one in endpoints if one.context_tokens is None or one.context_tokens >= needed]
    if enough:
        return tuple(enough)
    usable = [one for one in endpoints if one.is_usable] or endpoints
    longest = max((one.context_tokens or 0 for one in usable), default=0)
    if longest <= least_input_tokens(request):
        return ()
    return tuple([one for one in endpoints if one.context_tokens == longest])


def too_long(endpoints: Sequence[Endpoint], request: InferenceRequest) -> RequestError:
    """The refusal of what fits into none of the endpoints."""
    longest = max((one.context_tokens or 0 for one in endpoints), default=0)
    least, about, model = least_input_tokens(request), request.estimated_input_tokens, request.requested_model
    message = (
        f"the prompt has {least} tokens or more (about {about}), and the longest context of model {model!r} holds "
        f"{longest}: shorten the prompt"
    )
    return RequestError(ErrorCode.CONTEXT_TOO_LONG, message, figures={"context_tokens": longest})


def as_short(endpoint: Endpoint, error: RequestError, every: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints that would find too long what `endpoint` does: its like within its pool, and all whose
    context is known to be no longer than what it says of its own.
    """
    told = _figure(error, "context_tokens") or endpoint.context_tokens
    pool, like = endpoint.plan.name, endpoint.context_tokens
    return tuple(
        [
            one
            for one in every
            if (one.plan.name == pool and one.context_tokens == like)
            or (told is not None and one.context_tokens is not None and one.context_tokens <= told)
        ]
    )


def note_too_long(request: InferenceRequest, endpoint: Endpoint, error: RequestError) -> None:
    """An engine has counted: the request needs more than the context there, so that the estimate was too low."""
    if not is_one_prompt(request):
        return
    told = _figure(error, "context_tokens") or endpoint.context_tokens or 0
    least = max(_figure(error, "prompt_tokens"), told + 1 - (request.output_limit_tokens or 1))
    request.estimated_input_tokens = max(request.estimated_input_tokens, least)


def without_path(endpoint: Endpoint, every: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints that lack an API as `endpoint` does: those of the same engine with the same model."""
    plan = endpoint.plan
    kind = (plan.model, plan.engine, plan.embeddings)
    return tuple([one for one in every if (one.plan.model, one.plan.engine, one.plan.embeddings) == kind])


def _figure(error: RequestError, name: str) -> int:
    found = (error.figures or {}).get(name)
    return found if isinstance(found, int) else 0


def least_input_tokens(request: InferenceRequest) -> int:
    return request.prompt_bytes // MOST_BYTES_PER_TOKEN


def is_one_prompt(request: InferenceRequest) -> bool:
    """Whether its input must fit as a whole: not several inputs, and nothing that the engine cuts."""
    if request.dialect is ApiDialect.EMBEDDINGS or not BENDS.isdisjoint(request.fields):
        return False
    return request.dialect is not ApiDialect.COMPLETIONS or not bytes(request.fields.get("prompt", b"")).startswith(
        b"["
    )
