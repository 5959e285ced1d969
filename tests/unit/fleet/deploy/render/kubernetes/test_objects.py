"""Words in manifests."""

import pytest

from headrace.fleet.deploy.render.kubernetes.objects import literal


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", "plain"),
        ("$HOME", "$HOME"),
        ("$(HOME)", "$$(HOME)"),
        ("a$$b", "a$$$$b"),
        ("$$(HOME)", "$$$$(HOME)"),
        ("$", "$"),
        ("a$$", "a$$$$"),
    ],
)
def test_every_dollar_arrives(text: str, written: str) -> None:
    """Kubernetes makes one dollar of two, and a value of $(NAME): of neither is left what was not meant so."""
    assert literal(text) == written
