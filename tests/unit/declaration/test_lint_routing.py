"""Names in routing that lead nowhere."""

import pytest

from headrace.declaration.lint_routing import lint_routing
from headrace.declaration.model import Declaration

POOL = {"model": "m", "engine": "vllm", "endpoints": ["http://127.0.0.1:1"]}


def found(routing: dict[str, object], **accepts: object) -> list[tuple[str, str]]:
    declaration = Declaration.model_validate(
        {
            "models": {"m": {"routing": routing}},
            "pools": {"a": {**POOL, "accepts": accepts}, "b": POOL},
            "tenants": {"t": {}},
        }
    )
    return [(".".join(map(str, each.path)), each.message) for each in lint_routing(declaration)]


def test_a_sound_policy_is_not_doubted() -> None:
    """Defaults, and a split over pools that exist, raise no finding."""
    assert found({}) == []
    assert found({"split": {"a": 9, "b": 1}}, tenants=["t"]) == []


@pytest.mark.parametrize(
    ("routing", "accepts", "path", "said"),
    [
        ({"split": {"a": 1, "b": 1, "c": 1}}, {}, "models.m.routing.split.c", "no pool of this name"),
        ({"split": {"a": 1}}, {}, "models.m.routing.split", "gives nothing to b"),
        ({"scorers": [{"kind": "least-loaded", "weight": 0}]}, {}, "models.m.routing.scorers", "every weight is 0"),
        (
            {"scorers": [{"kind": "prefix-match"}], "brake_factor": None},
            {},
            "models.m.routing.brake_factor",
            "nothing spreads",
        ),
        (
            {"scorers": [{"kind": "prefix-match"}], "prefix_index": {"enabled": False}},
            {},
            "models.m.routing.prefix_index.enabled",
            "sees nothing",
        ),
        ({}, {"tenants": ["t", "u"]}, "pools.a.accepts.tenants.1", "no such tenant"),
    ],
)
def test_what_leads_nowhere_is_named(
    routing: dict[str, object], accepts: dict[str, object], path: str, said: str
) -> None:
    """A wrong name, or a policy without effect, is said at its key."""
    ((where, message),) = found(routing, **accepts)
    assert where == path
    assert said in message
