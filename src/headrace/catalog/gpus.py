"""GPUs that inference runs on: memory, bandwidth, dense arithmetic and links, each with its source. Facts, no logic.

Vendor sheets print the figure *with* 2:4 sparsity where they can; no engine uses it, so the dense figure stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GB, TB, TERA = 1e9, 1e12, 1e12
MIB = 2**20

NVIDIA_A100 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
NVIDIA_H100 = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
NVIDIA_HOPPER = "https://resources.nvidia.com/en-us-tensor-core (H100 Tensor Core GPU architecture, table 2)"
NVIDIA_H200 = "https://nvdam.widen.net/s/nb5zzzsjdf/hpc-datasheet-sc23-h200-datasheet-3002446"
NVIDIA_B200 = "https://www.nvidia.com/en-us/data-center/hgx/ (HGX B200: figures of eight GPUs, divided)"
NVIDIA_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
NVIDIA_L40S = "https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"
NVIDIA_A10 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/datasheet-new/nvidia-a10-datasheet.pdf"
)
NVIDIA_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf (appendix A)"
EXPORT_A800 = "as A100; NVLink 400 GB/s: https://www.nvidia.com/en-us/design-visualization/a800/"
EXPORT_H800 = "as H100; NVLink 400 GB/s: arXiv:2505.09343 section 4.1"
EXPORT_H20 = "NVIDIA's H20 sheet for its market as quoted by the trade press (148 FP16, 296 FP8, 4.0 TB/s, 900 GB/s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU model in one form factor.

    Units: bytes, bytes per second (decimal, as sheets count), floating-point or integer operations per second.
    """

    name: str
    aliases: tuple[str, ...] = ()
    architecture: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    """What the driver reports as total: less than the name says where ECC lives in memory.

    Source: `nvidia-smi` outputs published for each model (as "0MiB / 81559MiB" for the H100).
    """
    memory_bytes_per_s: float
    dense_per_s: Mapping[str, float]
    """Operations per second without sparsity, by precision of the tensor cores. A precision that is missing has no
    tensor cores here: engines may still store weights in it and compute in another."""
    nvlink_bytes_per_s: float | None
    """Both directions together, as sheets count; None: no NVLink."""
    pcie_bytes_per_s: float
    """Both directions together."""
    max_nvlink_gpus: int = 8
    """How many GPUs NVLink joins: 2 by a bridge, 8 on a board with switches, 1 without."""
    source: str

    @property
    def has_nvlink(self) -> bool:
        return self.nvlink_bytes_per_s is not None

    def peer_bytes_per_s(self, gpus: int) -> float:
        """Return how fast a GPU of a group of this size sends to the others, in one direction."""
        if self.nvlink_bytes_per_s is not None and gpus <= self.max_nvlink_gpus:
            return self.nvlink_bytes_per_s / 2
        return self.pcie_bytes_per_s / 2

    def operations_per_s(self, precision: str) -> float:
        """Return dense operations per second in a precision, or in 16 bits where it has no tensor cores."""
        return self.dense_per_s.get(precision, self.dense_per_s["bf16"])


def _dense(bf16: float, **others: float) -> Mapping[str, float]:
    """Return operations per second from figures in tera-operations; FP16 is as fast as BF16 on all of these."""
    return MappingProxyType({name: value * TERA for name, value in {"bf16": bf16, "fp16": bf16, **others}.items()})


_AMPERE = _dense(312, tf32=156, int8=624, int4=1248)
_HOPPER_SXM = _dense(989.4, tf32=494.7, fp8=1978.9, int8=1978.9)
_HOPPER_PCIE = _dense(756, tf32=378, fp8=1513, int8=1513)
_HOPPER_NVL = _dense(835.5, tf32=417.5, fp8=1670.5, int8=1670.5)
PCIE_4, PCIE_5 = 64 * GB, 128 * GB
"""16 lanes, both directions."""


GPUS: tuple[Gpu, ...] = (
    Gpu(
        name="a100-sxm-80gb",
        aliases=("a100", "a100-80gb", "a100-sxm"),
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=81_920 * MIB,
        memory_bytes_per_s=2039 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=600 * GB,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_A100,
    ),
    Gpu(
        name="a100-sxm-40gb",
        aliases=("a100-40gb",),
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=40_960 * MIB,
        memory_bytes_per_s=1555 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=600 * GB,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_A100,
    ),
    Gpu(
        name="a100-pcie-80gb",
        aliases=("a100-pcie",),
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=81_920 * MIB,
        memory_bytes_per_s=1935 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=600 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_A100,
    ),
    Gpu(
        name="a100-pcie-40gb",
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=40_960 * MIB,
        memory_bytes_per_s=1555 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=600 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_A100,
    ),
    Gpu(
        name="a800-sxm-80gb",
        aliases=("a800", "a800-80gb", "a800-sxm"),
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=81_920 * MIB,
        memory_bytes_per_s=2039 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=400 * GB,
        pcie_bytes_per_s=PCIE_4,
        source=EXPORT_A800,
    ),
    Gpu(
        name="a800-pcie-80gb",
        aliases=("a800-pcie",),
        architecture="ampere",
        compute_capability=(8, 0),
        memory_bytes=81_920 * MIB,
        memory_bytes_per_s=1935 * GB,
        dense_per_s=_AMPERE,
        nvlink_bytes_per_s=400 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_4,
        source=EXPORT_A800,
    ),
    Gpu(
        name="h100-sxm-80gb",
        aliases=("h100", "h100-80gb", "h100-sxm"),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=81_559 * MIB,
        memory_bytes_per_s=3350 * GB,
        dense_per_s=_HOPPER_SXM,
        nvlink_bytes_per_s=900 * GB,
        pcie_bytes_per_s=PCIE_5,
        source=NVIDIA_H100,
    ),
    Gpu(
        name="h100-pcie-80gb",
        aliases=("h100-pcie",),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=81_559 * MIB,
        memory_bytes_per_s=2000 * GB,
        dense_per_s=_HOPPER_PCIE,
        nvlink_bytes_per_s=600 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_5,
        source=NVIDIA_HOPPER,
    ),
    Gpu(
        name="h100-nvl-94gb",
        aliases=("h100-nvl",),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=95_830 * MIB,
        memory_bytes_per_s=3900 * GB,
        dense_per_s=_HOPPER_NVL,
        nvlink_bytes_per_s=600 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_5,
        source=NVIDIA_H100,
    ),
    Gpu(
        name="h800-sxm-80gb",
        aliases=("h800", "h800-80gb", "h800-sxm"),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=81_559 * MIB,
        memory_bytes_per_s=3350 * GB,
        dense_per_s=_HOPPER_SXM,
        nvlink_bytes_per_s=400 * GB,
        pcie_bytes_per_s=PCIE_5,
        source=EXPORT_H800,
    ),
    Gpu(
        name="h800-pcie-80gb",
        aliases=("h800-pcie",),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=81_559 * MIB,
        memory_bytes_per_s=2000 * GB,
        dense_per_s=_HOPPER_PCIE,
        nvlink_bytes_per_s=400 * GB,
        max_nvlink_gpus=2,
        pcie_bytes_per_s=PCIE_5,
        source=EXPORT_H800,
    ),
    Gpu(
        name="h20-96gb",
        aliases=("h20",),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=97_871 * MIB,
        memory_bytes_per_s=4000 * GB,
        dense_per_s=_dense(148, tf32=74, fp8=296, int8=296),
        nvlink_bytes_per_s=900 * GB,
        pcie_bytes_per_s=PCIE_5,
        source=EXPORT_H20,
    ),
    Gpu(
        name="h200-sxm-141gb",
        aliases=("h200", "h200-sxm"),
        architecture="hopper",
        compute_capability=(9, 0),
        memory_bytes=143_771 * MIB,
        memory_bytes_per_s=4800 * GB,
        dense_per_s=_HOPPER_SXM,
        nvlink_bytes_per_s=900 * GB,
        pcie_bytes_per_s=PCIE_5,
        source=NVIDIA_H200,
    ),
    Gpu(
        name="b200-sxm-180gb",
        aliases=("b200", "b200-sxm"),
        architecture="blackwell",
        compute_capability=(10, 0),
        memory_bytes=183_359 * MIB,
        memory_bytes_per_s=8000 * GB,
        dense_per_s=_dense(2250, tf32=1100, fp8=4500, int8=4500, nvfp4=9000, mxfp4=9000),
        nvlink_bytes_per_s=1800 * GB,
        pcie_bytes_per_s=PCIE_5,
        source=NVIDIA_B200,
    ),
    Gpu(
        name="l4",
        aliases=("l4-24gb",),
        architecture="ada",
        compute_capability=(8, 9),
        memory_bytes=23_034 * MIB,
        memory_bytes_per_s=300 * GB,
        dense_per_s=_dense(121, tf32=60, fp8=242.5, int8=242.5),
        nvlink_bytes_per_s=None,
        max_nvlink_gpus=1,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_L4,
    ),
    Gpu(
        name="l40s",
        aliases=("l40s-48gb",),
        architecture="ada",
        compute_capability=(8, 9),
        memory_bytes=46_068 * MIB,
        memory_bytes_per_s=864 * GB,
        dense_per_s=_dense(362.05, tf32=183, fp8=733, int8=733, int4=733),
        nvlink_bytes_per_s=None,
        max_nvlink_gpus=1,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_L40S,
    ),
    Gpu(
        name="rtx-4090",
        aliases=("4090", "rtx4090"),
        architecture="ada",
        compute_capability=(8, 9),
        memory_bytes=24_564 * MIB,
        memory_bytes_per_s=1008 * GB,
        # With 32-bit accumulation, as engines compute; 16-bit accumulation would be twice as fast.
        dense_per_s=_dense(165.2, tf32=82.6, fp8=330.3, int8=660.6, int4=1321.2),
        nvlink_bytes_per_s=None,
        max_nvlink_gpus=1,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_ADA,
    ),
    Gpu(
        name="a10",
        aliases=("a10-24gb",),
        architecture="ampere",
        compute_capability=(8, 6),
        memory_bytes=23_028 * MIB,
        memory_bytes_per_s=600 * GB,
        dense_per_s=_dense(125, tf32=62.5, int8=250, int4=500),
        nvlink_bytes_per_s=None,
        max_nvlink_gpus=1,
        pcie_bytes_per_s=PCIE_4,
        source=NVIDIA_A10,
    ),
)

_BY_NAME: Mapping[str, Gpu] = MappingProxyType({name: gpu for gpu in GPUS for name in (gpu.name, *gpu.aliases)})


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU of a name or alias, whatever the case; None if it is not in the catalogue."""
    return _BY_NAME.get(name.lower())


def gpu_names() -> tuple[str, ...]:
    """Return every name and alias, sorted, for messages."""
    return tuple(sorted(_BY_NAME))
