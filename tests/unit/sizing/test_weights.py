"""Sizes of weights against published checkpoints, and how they are split over devices."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sizing.hf_config import read_hf_config
from headrace.sizing.weights import checkpoint_bytes, device_weight_bytes

PUBLISHED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "captures" / "sizing" / "published_weights.json").read_text()
)


@pytest.mark.parametrize("case", PUBLISHED, ids=[case["model"] for case in PUBLISHED])
def test_weights_are_as_published(case: dict[str, Any]) -> None:
    """From a model's config.json alone its weights are known to 3 %: here, to a tenth of one."""
    assert checkpoint_bytes(read_hf_config(case["config"])) == pytest.approx(case["published_bytes"], rel=0.001)


def test_published_cases_cover_every_kind() -> None:
    """Dense, grouped-query, latent, windowed, mixture, hybrid, AWQ and FP8 are all among the published models."""
    kinds = " ".join(case["kind"] for case in PUBLISHED)
    assert len(PUBLISHED) >= 10
    assert all(kind in kinds for kind in ("GQA", "MLA", "sliding window", "mixture", "hybrid", "AWQ", "FP8"))


def test_what_every_device_holds_whole_is_not_divided() -> None:
    """MLA's compressions are on each GPU of a tensor group, so eight GPUs hold more than one model together."""
    latent = read_hf_config(next(case for case in PUBLISHED if "MLA" in case["kind"])["config"])
    dense = read_hf_config(next(case for case in PUBLISHED if case["kind"] == "dense GQA")["config"])
    assert device_weight_bytes(dense, tensor=8) == pytest.approx(checkpoint_bytes(dense) / 8, rel=0.001)
    assert device_weight_bytes(latent, tensor=8) > checkpoint_bytes(latent) / 8 * 1.01
    assert device_weight_bytes(latent, pipeline=2) == pytest.approx(checkpoint_bytes(latent) / 2, rel=0.001)


def test_files_that_are_here_count_more_than_arithmetic() -> None:
    """Where the weights are on this machine, their size is taken."""
    dense = read_hf_config(PUBLISHED[0]["config"])
    assert device_weight_bytes(dense, measured_bytes=10**9) == pytest.approx(10**9, rel=1e-6)


def test_experts_spread_over_more_devices_than_the_tensor_group() -> None:
    """With data-parallel attention, each GPU holds its share of experts and all of the rest."""
    mixture = read_hf_config(next(case for case in PUBLISHED if case["model"] == "WizardLM-2-8x22B")["config"])
    experts_bytes = mixture.parameters.experts * 2
    alone = device_weight_bytes(mixture)
    assert alone - device_weight_bytes(mixture, expert=8) == pytest.approx(experts_bytes * 7 / 8, rel=1e-6)
    assert device_weight_bytes(mixture, tensor=8, expert=8) == device_weight_bytes(mixture, tensor=8)
