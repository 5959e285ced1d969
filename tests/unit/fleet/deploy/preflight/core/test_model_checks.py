"""What is said of a model's files."""

from typing import Any

from tests.unit.sizing.test_hf_config import SMALL

from headrace.declaration.model import Model, Pool
from headrace.fleet.deploy.preflight.core.finding import Level
from headrace.fleet.deploy.preflight.core.machine import ModelFacts, PoolPlan
from headrace.fleet.deploy.preflight.core.model_checks import check_model
from headrace.sizing.hf_config import read_hf_config

WHOLE = {"a.safetensors": 600, "b.safetensors": 410, "tokenizer.json": 5}
SHARDS = ("a.safetensors", "b.safetensors")


def levels(*, model: Model | None = None, engine: str = "vllm", **facts: Any) -> dict[str, Level]:
    pool = Pool.model_validate({"model": "m", "engine": engine})
    known = {"path": "/m", "is_here": True, "files": WHOLE, "shards": SHARDS, "total_bytes": 1000} | facts
    plan = PoolPlan(name="p", pool=pool, model=model or Model(), repository="m", facts=ModelFacts(**known))
    return {finding.code: finding.level for finding in check_model(plan)}


def test_a_whole_model_passes_but_for_its_template() -> None:
    """A chat template of its own, or a declared one, is wanted for chats."""
    assert levels() == {"model-files": "ok", "tokenizer": "ok", "chat-template": "warn"}
    assert "chat-template" not in levels(has_own_template=True)
    assert "chat-template" not in levels(model=Model(chat_template="{{ messages }}"))


def test_missing_cut_off_and_absent_weights_fail() -> None:
    """Every shard of the index must be there, and all of it."""
    assert levels(files={"a.safetensors": 600})["model-files"] == "fail"
    assert levels(files={**WHOLE, "b.safetensors": 300})["model-files"] == "fail"
    assert levels(files={"tokenizer.json": 5}, shards=())["model-files"] == "fail"


def test_weights_without_a_tokenizer_fail() -> None:
    """Only the weights were copied."""
    assert levels(files={"a.safetensors": 600, "b.safetensors": 410})["tokenizer"] == "fail"


def test_a_model_that_is_not_here_is_no_fault() -> None:
    """It is fetched at the first start."""
    assert levels(is_here=False) == {"model-files": "ok"}


def test_a_checksum_that_was_not_computed_is_a_doubt() -> None:
    """Neither right nor wrong is claimed."""
    declared = Model(sha256="0" * 64)
    assert levels(model=declared, engine="llamacpp") == {"checksum": "warn"}
    assert levels(model=declared, engine="llamacpp", sha256="0" * 64) == {"checksum": "ok"}
    assert levels(model=declared, engine="llamacpp", sha256="1" * 64) == {"checksum": "fail"}


def test_code_of_a_family_that_is_not_known_needs_a_review() -> None:
    """A known family with code beside it runs without that code."""
    new = read_hf_config(SMALL | {"model_type": "brandnew"})
    assert levels(has_remote_code=True, architecture=new)["remote-code"] == "fail"
    assert "remote-code" not in levels(has_remote_code=True, architecture=read_hf_config(SMALL))
    trusted = Model(trust_remote_code=True, reviewed_revision="a" * 40)
    assert levels(model=trusted, has_remote_code=True, architecture=new)["remote-code"] == "ok"
