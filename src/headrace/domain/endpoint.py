"""One addressable server of one pool, and the states it can be in."""

from enum import StrEnum


class EngineKind(StrEnum):
    """The software behind an endpoint. `openai` is any server of OpenAI's API that headrace has no driver for."""

    LLAMACPP = "llamacpp"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    OPENAI = "openai"


class ReplicaPhase(StrEnum):
    """Where a replica that headrace runs stands. Each has a duration in `headrace status`."""

    FETCHING = "fetching"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    """It has answered a real request since it started."""
    DRAINING = "draining"
    STOPPED = "stopped"
    BACKING_OFF = "backing-off"
    """It died and will be started again after a pause."""
    CRASH_LOOP = "crash-loop"
    """It died too often in too short a time; an operator must act."""


class EndpointState(StrEnum):
    """How the gateway sees an endpoint."""

    UNKNOWN = "unknown"
    """Not probed yet: not used."""
    READY = "ready"
    BUSY = "busy"
    """Probe timed out while requests make progress: still used, never evicted for it."""
    NOT_READY = "not-ready"
    EJECTED = "ejected"
    """Taken out for a while after failures; one trial request or probe brings it back."""
    DRAINING = "draining"
