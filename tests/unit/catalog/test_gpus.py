"""The GPU catalogue: every fact has a source, names are found, and figures are dense, not sparse."""

import pytest

from headrace.catalog.gpus import GPUS, find_gpu, gpu_names

ASKED = "a100 a800 h100 h800 h20 h200 b200 l4 l40s 4090 a10".split()


@pytest.mark.parametrize("name", ASKED)
def test_names_that_operators_use_are_found(name: str) -> None:
    """An operator writes h100 or 4090, in any case, and gets the common form factor."""
    gpu = find_gpu(name.upper())

    assert gpu is not None
    assert name in gpu.name


def test_an_unknown_gpu_is_none() -> None:
    """A GPU that is not in the catalogue is not guessed."""
    assert find_gpu("h1000") is None


def test_no_name_stands_for_two_gpus() -> None:
    """Every name and alias means exactly one GPU."""
    names = [name for gpu in GPUS for name in (gpu.name, *gpu.aliases)]

    assert len(set(names)) == len(names)
    assert set(gpu_names()) == set(names)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_has_a_source_and_consistent_figures(gpu) -> None:
    """Sources are given; eight-bit arithmetic, where there is any, is about twice as fast as sixteen-bit."""
    assert gpu.source
    assert gpu.has_nvlink == (gpu.max_nvlink_gpus > 1)
    for precision in ("fp8", "int8"):
        if precision in gpu.dense_per_s:
            ratio = gpu.dense_per_s[precision] / gpu.dense_per_s["bf16"]
            assert 1.99 < ratio < 4.01
    assert ("fp8" in gpu.dense_per_s) == (gpu.compute_capability >= (8, 9))
    assert ("nvfp4" in gpu.dense_per_s) == (gpu.compute_capability >= (10, 0))


def test_dense_figures_are_not_the_sparse_ones() -> None:
    """The H100's 1,979 TFLOP/s in BF16 are with sparsity; without it they are 989."""
    assert find_gpu("h100").dense_per_s["bf16"] == pytest.approx(989.4e12)


def test_a_group_larger_than_its_bridge_talks_over_pcie() -> None:
    """Two PCIe cards share an NVLink bridge; four fall back to the bus."""
    card = find_gpu("a100-pcie")

    assert card.peer_bytes_per_s(2) == 300e9
    assert card.peer_bytes_per_s(4) == 32e9
    assert find_gpu("l4").peer_bytes_per_s(2) == 32e9
