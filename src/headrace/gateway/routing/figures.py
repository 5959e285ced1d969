"""Routing's counts as the metrics want them. Counterpart: `accounting/routing_exposition.py`."""

from collections.abc import Mapping

from headrace.domain.routing_figures import EndpointPicks, ModelRouting, PoolPrediction, RoutingFigures
from headrace.gateway.routing.core.model_choice import ModelPace
from headrace.gateway.routing.placer import Placer
from headrace.telemetry.routing_metrics import PREDICTION_BOUNDS


def routing_figures(placer: Placer, paces: Mapping[str, ModelPace]) -> RoutingFigures:
    """This worker's figures since it started. `paces`: of the models that were chosen among."""
    return RoutingFigures(
        endpoints=tuple(
            EndpointPicks(
                endpoint=endpoint.endpoint_id,
                by_prefix=candidate.prefix_claims,
                by_load=candidate.claims - candidate.prefix_claims,
                index_blocks=len(candidate.shelf.sizes),
                index_tokens=round(candidate.shelf.held / bytes_per_token),
            )
            for endpoint, candidate, bytes_per_token in placer.known()
        ),
        pools=tuple(
            PoolPrediction(pool=pool, bounds=PREDICTION_BOUNDS, counts=tuple(speed.miss_counts), total=speed.miss_sum)
            for pool, speed in placer.speeds()
        ),
        models=tuple(_model_routing(placer, model, braked, sampled) for model, braked, sampled in placer.picks()),
        choices={(name, model): count for model, pace in paces.items() for name, count in pace.choices.items()},
    )


def _model_routing(placer: Placer, model: str, braked: int, sampled: int) -> ModelRouting:
    tallies = [tally for (name, _), tally in placer.tallies.by_tenant.items() if name == model]
    return ModelRouting(
        model=model,
        left_out={why: count for (name, why), count in placer.left_out.items() if name == model and count},
        braked=braked,
        sampled=sampled,
        told_tokens=sum(tally.input_tokens for tally in tallies),
        expected_tokens=round(sum(tally.expected_tokens for tally in tallies)),
        cached_tokens=sum(tally.cached_tokens for tally in tallies),
    )
