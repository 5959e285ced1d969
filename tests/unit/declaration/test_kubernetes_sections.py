"""What only `headrace render kubernetes` reads."""

import pytest
from pydantic import ValidationError

from headrace.declaration.kubernetes_sections import Autoscale, Kubernetes, KubernetesPool, Toleration


def test_three_environments_are_there_by_default() -> None:
    """Overlays for development, staging and production need no declaration."""
    assert list(Kubernetes().environments) == ["dev", "staging", "prod"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"operator": "Equal", "key": "gpu"}, "Equal needs one"),
        ({"value": "h100", "key": "gpu"}, "Equal needs one"),
        ({"operator": "Equal", "value": "h100"}, "Equal needs a key"),
    ],
)
def test_a_toleration_compares_what_it_names(given: dict[str, str], said: str) -> None:
    """Kubernetes refuses half a comparison; so does the declaration."""
    with pytest.raises(ValidationError, match=said):
        Toleration.model_validate(given)


def test_an_empty_range_of_replicas_is_refused() -> None:
    """The most replicas are not fewer than the least."""
    with pytest.raises(ValidationError, match="maximum is less than minimum"):
        Autoscale(minimum=3, maximum=2)
    assert Autoscale(minimum=2, maximum=2).maximum == 2


def test_colours_belong_to_blue_green() -> None:
    """A colour without a second set would be without effect."""
    with pytest.raises(ValidationError, match="colour and serve go with strategy: blue-green"):
        KubernetesPool(strategy="rolling", colour="green")
    assert KubernetesPool(strategy="blue-green", colour="green", serve="green").serve == "green"
