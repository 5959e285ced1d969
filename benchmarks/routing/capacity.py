"""What a simulated fleet gets done under round robin, found in virtual time: load 1."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.routing.engines import FleetShape
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.hardware import Hardware, model_of
from headrace.gateway.routing.core.decision import Policy, Weighted
from headrace.gateway.routing.core.scorers import RoundRobinScorer
from headrace.rehearsal.routing import rehearse
from headrace.rehearsal.routing_trace import TRACE_BLOCK_TOKENS, TracedRequest, at_rate
from headrace.simulation.model import EngineModel

ROUND_ROBIN = Policy(
    scorers=(Weighted(scorer=RoundRobinScorer(), weight=1.0, offline_weight=1.0),),
    brake_factor=None,
    uses_prefixes=False,
)


def fleet_model(shape: FleetShape) -> EngineModel:
    """One replica's engine, its KV blocks as large as the trace's."""
    hardware = Hardware(dialect=DialectKind.VLLM, gpu=shape.gpu, model=shape.model, context_tokens=shape.context_tokens)
    model = model_of(hardware)
    blocks = model.kv.total_blocks * model.kv.block_tokens // TRACE_BLOCK_TOKENS
    return replace(model, kv=replace(model.kv, total_blocks=blocks, block_tokens=TRACE_BLOCK_TOKENS))


def capacity_per_s(shape: FleetShape, trace: Sequence[TracedRequest]) -> float:
    """Requests a simulated second that the fleet gets done, when all are there from the start."""
    records = list(rehearse(fleet_model(shape), shape.replicas, at_rate(trace, 1e6), ROUND_ROBIN))
    ends_s = sorted(record.ended_at_s or 0.0 for record in records)
    most = len(ends_s) * 9 // 10  # the last ones run on a fleet that is half empty
    return most / ends_s[most - 1]
