"""Bytes of a model's weights: in the checkpoint, and on each device of a replica."""

import math

from headrace.sizing.architecture import Architecture, WeightFormat


def checkpoint_bytes(architecture: Architecture) -> int:
    """Return what the weights take as published: the file's own figure, or parameters times their format."""
    if architecture.weight_bytes is not None:
        return architecture.weight_bytes
    parameters, weights = architecture.parameters, architecture.weights
    other = parameters.embedding + parameters.plain + parameters.vision
    dense = (parameters.linear + parameters.replicated) * _dense_bytes(weights)
    return round(dense + parameters.experts * weights.matrix_bytes + other * weights.plain_bytes)


def device_weight_bytes(
    architecture: Architecture,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    expert: int = 1,
    measured_bytes: int | None = None,
) -> int:
    """Return what one device holds, taking pipeline stages as equal.

    `expert`: devices over which routed experts are spread, where they are more than the tensor group.
    `measured_bytes`: size of the files, where they are here; it scales the whole.
    """
    parameters, weights = architecture.parameters, architecture.weights
    whole = checkpoint_bytes(architecture)
    held_whole = parameters.replicated * _dense_bytes(weights) + parameters.plain * weights.plain_bytes
    if architecture.weight_bytes is not None:
        held_whole = 0.0
    experts = parameters.experts * weights.matrix_bytes
    device = (whole - held_whole - experts) / tensor + held_whole + experts / max(tensor, expert)
    scale = 1.0 if measured_bytes is None or not whole else measured_bytes / whole
    return math.ceil(device * scale / pipeline)


def _dense_bytes(weights: WeightFormat) -> float:
    return weights.plain_bytes if weights.experts_only else weights.matrix_bytes
