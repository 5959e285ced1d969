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


def least_input_tokens(request: InferenceRequest) -> int:
    return request.prompt_bytes // MOST_BYTES_PER_TOKEN


def is_one_prompt(request: InferenceRequest) -> bool:
    """Whether its input must fit as a whole: not several inputs, and nothing that the engine cuts."""
    if request.dialect is ApiDialect.EMBEDDINGS or not BENDS.isdisjoint(request.fields):
        return False
    return request.dialect is not ApiDialect.COMPLETIONS or not bytes(request.fields.get("prompt", b"")).startswith(
        b"["
    )
