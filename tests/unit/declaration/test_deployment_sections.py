"""The keys that only `headrace render` reads."""

import pytest
from pydantic import ValidationError

from headrace.declaration.deployment_sections import Container, Deployment

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "image",
    [
        *("vllm:v1", "docker.io/vllm/vllm-openai:v0.33.0", "registry.example.com:5000/a/b:1", f"a/b@{DIGEST}"),
        f"registry.example.com:5000/a:1.2-x@{DIGEST}",
    ],
)
def test_a_pinned_image_is_taken(image: str) -> None:
    """A tag, a digest, or both; registries may have a port."""
    assert Container(image=image).image == image


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("vllm", "not pinned"),
        ("vllm:latest", "not pinned"),
        ("registry.example.com:5000/vllm", "not pinned"),
        ("Vllm:1", "is not an image"),
        ("vllm:1 --privileged", "is not an image"),
        (f"vllm@{DIGEST[:-1]}", "is not an image"),
        (f"vllm:latest@{DIGEST}", "not pinned"),
    ],
)
def test_an_image_that_can_change_is_refused(image: str, said: str) -> None:
    """No tag, the tag latest, and what is no image at all."""
    with pytest.raises(ValidationError, match=said):
        Container(image=image)


@pytest.mark.parametrize("namespace", ["a", "llm-1", "x" * 63])
def test_a_namespace_is_a_dns_label(namespace: str) -> None:
    """Lower case, digits, hyphens, at most 63."""
    assert Deployment(namespace=namespace).namespace == namespace


@pytest.mark.parametrize("namespace", ["", "A", "a_b", "-a", "a-", "x" * 64])
def test_other_namespaces_are_refused(namespace: str) -> None:
    """What no cluster and no systemd would take."""
    with pytest.raises(ValidationError):
        Deployment(namespace=namespace)
