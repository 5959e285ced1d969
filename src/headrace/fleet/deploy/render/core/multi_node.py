"""A replica over several nodes: how many, and the words by which its processes find each other."""

from collections.abc import Iterator

from headrace.declaration.model import Pool
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.model import RenderNote, Severity

MEETING_PORT = 25000
"""Where nodes of a replica meet (torch.distributed). Our choice, as in SGLang's examples; vLLM's default is 29501."""


def nodes_of(pool: Pool, gpus: int) -> int:
    """Return the nodes of one replica."""
    per_node = pool.placement.gpus_per_node
    return 1 if per_node is None or gpus <= per_node else -(-gpus // per_node)


def node_words(engine: EngineKind, *, nodes: int, rank: str, leader: str) -> tuple[str, ...]:
    """Return what is added to the command of the node `rank` of `nodes`.

    `rank` and `leader` (the first node's address) may be a shell's or Kubernetes' reference. TensorRT-LLM has no such
    words: MPI starts its processes.
    """
    if engine is EngineKind.VLLM:
        words = ("--nnodes", str(nodes), "--node-rank", rank, "--master-addr", leader)
        return (*words, "--master-port", str(MEETING_PORT), *(() if rank == "0" else ("--headless",)))
    if engine is EngineKind.SGLANG:
        return ("--nnodes", str(nodes), "--node-rank", rank, "--dist-init-addr", f"{leader}:{MEETING_PORT}")
    return ()


def node_notes(pool_name: str, pool: Pool, gpus: int) -> Iterator[RenderNote]:
    """Yield why the nodes cannot be as declared."""
    per_node = pool.placement.gpus_per_node
    if nodes_of(pool, gpus) == 1:
        return
    if per_node is not None and gpus % per_node:
        yield RenderNote(
            severity=Severity.ERROR,
            key=f"pools.{pool_name}.placement.gpus_per_node",
            message=f"is {per_node}, but a replica needs {gpus} GPUs: its nodes would not be equal",
            hint="Choose parallel.tensor and parallel.pipeline whose product is a multiple of it",
        )
    if pool.engine is EngineKind.LLAMACPP:
        yield RenderNote(
            severity=Severity.ERROR,
            key=f"pools.{pool_name}.placement.gpus_per_node",
            message=f"is {per_node}, but llama.cpp does not spread over nodes",
        )
    if pool.engine is EngineKind.VLLM and pool.options.parallel.data > 1:
        yield RenderNote(
            severity=Severity.ERROR,
            key=f"pools.{pool_name}.parallel.data",
            message="is more than 1 on several nodes, which vLLM starts in another way that is not rendered",
            hint="Declare more placement.replicas instead",
        )
