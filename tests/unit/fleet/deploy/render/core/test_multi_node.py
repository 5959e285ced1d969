"""The words by which the nodes of a replica find each other."""

from pathlib import Path

import pytest
from tests.harness.launch_specs import recorded_flags

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.multi_node import node_words


def test_each_node_is_told_its_rank_and_the_leader() -> None:
    """vLLM's other nodes run without a server of their own."""
    assert node_words(EngineKind.VLLM, nodes=2, rank="0", leader="lead") == (
        *("--nnodes", "2", "--node-rank", "0", "--master-addr", "lead", "--master-port", "25000"),
    )
    assert node_words(EngineKind.VLLM, nodes=2, rank="1", leader="lead")[-1] == "--headless"
    assert node_words(EngineKind.SGLANG, nodes=2, rank="1", leader="lead") == (
        *("--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "lead:25000"),
    )
    assert node_words(EngineKind.TENSORRT_LLM, nodes=2, rank="1", leader="lead") == ()


@pytest.mark.parametrize(("engine", "recorded"), [(EngineKind.VLLM, "vllm"), (EngineKind.SGLANG, "sglang")])
def test_the_engines_have_these_flags(engine: EngineKind, recorded: str) -> None:
    """The recorded --help of each engine lists every flag that is added."""
    folder = Path(__file__).parents[5] / "captures" / recorded
    texts = [path for path in folder.iterdir() if "flags" in path.name or "help" in path.name]
    known = set[str]().union(*(recorded_flags(f"{recorded}/{path.name}") for path in texts))
    words = node_words(engine, nodes=2, rank="1", leader="lead")
    assert [word for word in words if word.startswith("--") and word not in known] == []
