"""The engines' own container images, by version: tag, how the engine starts in it, and which user may run it.

Tags follow each project's own scheme. No digest is listed, since none was pulled and checked: give it in
`pools.<name>.container.image` where a tag is not enough.
"""

from dataclasses import dataclass
from typing import Literal

from headrace.domain.endpoint import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineImage:
    """One image of one version of an engine."""

    engine: EngineKind
    version: str
    device: Literal["gpu", "cpu"]
    reference: str
    digest: str | None = None
    command: tuple[str, ...]
    """Words that start the engine, before its arguments; given in place of the image's entry point."""
    http_client: Literal["python3", "curl"]
    """What the image has to ask its own health path with."""
    user: str | None
    """UID:GID that the image is made for, "any", or None: only root."""
    user_source: str
    source: str

    @property
    def pinned(self) -> str:
        return self.reference if self.digest is None else f"{self.reference}@{self.digest}"


VLLM_NONROOT = "vllm-project/vllm#40275: since then the image has a user vllm (2000, group 0) with a home of its own"
VLLM_TAGS = "https://docs.vllm.ai/en/stable/deployment/docker/: vllm/vllm-openai:vVERSION"
SGLANG_TAGS = "https://hub.docker.com/r/lmsysorg/sglang/tags: lmsysorg/sglang:vVERSION; docker/compose.yaml of its tree"
TRTLLM_TAGS = (
    "https://nvidia.github.io/TensorRT-LLM/quick-start-guide.html: nvcr.io/nvidia/tensorrt-llm/release:VERSION"
)
LLAMACPP_TAGS = "llama.cpp docs/docker.md and .github/workflows/docker.yml: server[-cuda]-bNUMBER; .devops/*.Dockerfile"
ROOT_ONLY = "its files and caches belong to root (the project's Dockerfile sets no other user)"


def _vllm(version: str) -> EngineImage:
    return EngineImage(
        engine=EngineKind.VLLM,
        version=version,
        device="gpu",
        reference=f"docker.io/vllm/vllm-openai:v{version}",
        command=("vllm",),
        http_client="python3",
        user="2000:0",
        user_source=VLLM_NONROOT,
        source=VLLM_TAGS,
    )


def _tensorrt_llm(version: str) -> EngineImage:
    return EngineImage(
        engine=EngineKind.TENSORRT_LLM,
        version=version,
        device="gpu",
        reference=f"nvcr.io/nvidia/tensorrt-llm/release:{version}",
        command=("trtllm-serve",),
        http_client="python3",
        user=None,
        user_source=ROOT_ONLY,
        source=TRTLLM_TAGS,
    )


def _llamacpp(device: Literal["gpu", "cpu"], tag: str) -> EngineImage:
    return EngineImage(
        engine=EngineKind.LLAMACPP,
        version="b11434",
        device=device,
        reference=f"ghcr.io/ggml-org/llama.cpp:{tag}-b11434",
        command=("/app/llama-server",),
        http_client="curl",
        user="any",
        user_source="a program that reads its model and writes nothing but saved slots",
        source=LLAMACPP_TAGS,
    )


IMAGES = (
    _vllm("0.32.0"),
    _vllm("0.33.0"),
    EngineImage(
        engine=EngineKind.SGLANG,
        version="0.5.23",
        device="gpu",
        reference="docker.io/lmsysorg/sglang:v0.5.23",
        command=("python3", "-m", "sglang.launch_server"),
        http_client="python3",
        user=None,
        user_source=ROOT_ONLY,
        source=SGLANG_TAGS,
    ),
    _tensorrt_llm("1.3.0rc6"),
    _tensorrt_llm("1.2.1"),
    _llamacpp("gpu", "server-cuda"),
    _llamacpp("cpu", "server"),
)
"""The first of an engine and device is what is rendered where no version is declared: of vLLM and SGLang the version on
which the contract suite was run (docs/real-engines.md; wheels for CPUs, not these images)."""


def find_image(engine: EngineKind, device: str, version: str | None = None) -> EngineImage | None:
    """Return the image of `version`, or the first; None where none is known."""
    found = (image for image in IMAGES if (image.engine, image.device) == (engine, device))
    return next((image for image in found if version in (None, image.version)), None)


def known_versions(engine: EngineKind) -> tuple[str, ...]:
    """Return the versions with an image, the default first."""
    return tuple(dict.fromkeys(image.version for image in IMAGES if image.engine is engine))
