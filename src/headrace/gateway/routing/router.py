"""Chooses an endpoint for an attempt: usable ones of the model's pools, not tried yet, least loaded."""

from collections.abc import Callable, Mapping

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.gateway.endpoints.directory import EndpointDirectory, count_states
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.serving import ServedModel
from headrace.gateway.routing.core.least_loaded import pick_least_loaded


class Router:
    """Routes by one gateway plan; endpoint states are read at each choice. Concurrency: event loop only."""

    def __init__(self, models: Mapping[str, ServedModel], directory: EndpointDirectory) -> None:
        self._directory = directory
        self._pools: dict[tuple[str, bytes], tuple[str, ...]] = {}
        self._models = models
        self._turn = 0

    def choose(self, request: InferenceRequest, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        """Return the endpoint for the next attempt; one already tried only where no other is usable, and an ejected
        one only where nothing else is left: it answers probes, so trying beats a sure refusal.

        Raises: RequestError NO_READY_ENDPOINT, saying what the endpoints are doing.
        """
        candidates = self._candidates(request)
        if len(candidates) == 1 and candidates[0].is_usable:
            return candidates[0]
        usable = [endpoint for endpoint in candidates if endpoint.is_usable] or [
            endpoint for endpoint in candidates if endpoint.is_last_resort
        ]
        fresh = [endpoint for endpoint in usable if endpoint not in tried] if tried else usable
        if not usable:
            raise self._nothing_ready(request)
        self._turn += 1
        return pick_least_loaded(fresh or usable, self._turn)

    def find(self, request: InferenceRequest, has_room: Callable[[Endpoint], bool]) -> Endpoint | None:
        """Return the endpoint for a first attempt, of those that admission finds room at; None: none has any.

        Raises: RequestError NO_READY_ENDPOINT where nothing could be chosen, room or not.
        """
        candidates = self._candidates(request)
        usable = [endpoint for endpoint in candidates if endpoint.is_usable] or [
            endpoint for endpoint in candidates if endpoint.is_last_resort
        ]
        if not usable:
            raise self._nothing_ready(request)
        with_room = [endpoint for endpoint in usable if has_room(endpoint)]
        if not with_room:
            return None
        self._turn += 1
        return pick_least_loaded(with_room, self._turn)

    def group(self, request: InferenceRequest) -> tuple[str, ...] | None:
        """Return the pools that may serve a request, the same object for the like of it; None where it has needs of
        its own: an endpoint that holds its earlier answer, or pools that can do what it asks.
        """
        if request.rewrites is not None or request.pinned_endpoint is not None:
            return None
        return self._pools_of(request)

    def has_other(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> bool:
        """Whether an endpoint that was not tried yet is usable."""
        return any(endpoint.is_usable and endpoint not in tried for endpoint in self._candidates(request))

    def is_ready(self) -> bool:
        """Whether any pool can answer."""
        return any(endpoint.is_usable for endpoint in self._directory)

    def _candidates(self, request: InferenceRequest) -> list[Endpoint] | tuple[Endpoint, ...]:
        pools = self._pools_of(request)
        if len(pools) == 1:
            found = self._directory.of_pool(pools[0])
        else:
            found = [endpoint for pool in pools for endpoint in self._directory.of_pool(pool)]
        if request.rewrites is not None:
            found = [endpoint for endpoint in found if endpoint.plan.name in request.rewrites]
        if request.pinned_endpoint is not None:
            return [endpoint for endpoint in found if endpoint.endpoint_id == request.pinned_endpoint]
        return found

    def _pools_of(self, request: InferenceRequest) -> tuple[str, ...]:
        key = (request.requested_model, request.path)
        pools = self._pools.get(key)
        if pools is None:
            served = self._models[request.requested_model].pools_for(request.path.decode("ascii"))
            pools = self._pools[key] = tuple(pool.name for pool in served)
        return pools

    def _nothing_ready(self, request: InferenceRequest) -> RequestError:
        candidates = tuple(self._candidates(request))
        states = ", ".join(f"{count} {state.value}" for state, count in sorted(count_states(candidates).items()))
        message = (
            f"model {request.requested_model!r} has {len(candidates)} endpoints, 0 ready"
            + (f" ({states})" if states else "")
            + "; operators: headrace status"
        )
        return RequestError(ErrorCode.NO_READY_ENDPOINT, message)
