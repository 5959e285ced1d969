"""The engines' images: pinned, with a source, for every engine that headrace starts."""

from headrace.catalog.images import IMAGES, find_image, known_versions
from headrace.declaration.deployment_sections import check_image
from headrace.domain.endpoint import EngineKind


def test_every_image_is_pinned_and_says_where_it_comes_from() -> None:
    """No latest, a tag with the version, a source; a reason for each user."""
    for image in IMAGES:
        assert check_image(image.pinned) == image.pinned
        assert image.version in image.reference
        assert image.source
        assert image.user_source


def test_every_engine_has_an_image() -> None:
    """All that headrace starts, on GPUs; llama.cpp on CPUs too."""
    for engine in set(EngineKind) - {EngineKind.OPENAI}:
        assert find_image(engine, "gpu") is not None
        assert known_versions(engine)
    assert find_image(EngineKind.LLAMACPP, "cpu") is not None
    assert find_image(EngineKind.VLLM, "cpu") is None


def test_the_first_is_taken_or_the_one_asked_for() -> None:
    """Without a version the first row of the engine, else that version or none."""
    first, asked = find_image(EngineKind.VLLM, "gpu"), find_image(EngineKind.VLLM, "gpu", "0.33.0")
    assert first is not None
    assert first.version == known_versions(EngineKind.VLLM)[0]
    assert asked is not None
    assert asked.reference.endswith(":v0.33.0")
    assert find_image(EngineKind.VLLM, "gpu", "9") is None
