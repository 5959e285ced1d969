"""What `headrace engine launch` shows."""

from pathlib import Path

import pytest

from headrace.declaration.model import Declaration, Model
from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.launch_preview import place_of, preview_launches
from headrace.settings import Settings

SETTINGS = Settings(state_dir=Path("/state"), cache_dir=Path("/cache"))
DECLARATION = Declaration.model_validate(
    {
        "models": {"m": {"source": "hf:org/name@main"}},
        "pools": {
            "here": {"model": "m", "engine": "vllm"},
            "there": {"model": "m", "engine": "sglang", "port": 30000},
            "elsewhere": {"model": "m", "engine": "vllm", "endpoints": ["http://127.0.0.1:1"]},
        },
    }
)


def test_every_pool_that_headrace_runs_is_shown():
    """Remote pools have nothing to start."""
    previews = preview_launches(DECLARATION, SETTINGS)
    assert [(preview.pool, preview.engine, preview.port_is_chosen) for preview in previews] == [
        ("here", "vllm", True),
        ("there", "sglang", False),
    ]
    assert "30000" in previews[1].launch.argv


def test_one_pool_can_be_asked_for():
    """A pool that headrace does not run is named, with those that it runs."""
    [preview] = preview_launches(DECLARATION, SETTINGS, pool="there")
    assert preview.pool == "there"
    with pytest.raises(OperatorError, match="headrace runs no pool elsewhere"):
        preview_launches(DECLARATION, SETTINGS, pool="elsewhere")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("file:/m/model.gguf", "/m/model.gguf"),
        ("hf:org/name@main", "/cache/snapshots/org--name/main"),
        ("hf:org/name@main#a/model.gguf", "/cache/blobs/sha256/" + "0" * 64),
        ("pypi:wheel==1#a/model.gguf", "/cache/blobs/sha256/" + "0" * 64),
    ],
)
def test_a_model_is_shown_where_it_will_be(source: str, place: str):
    """Nothing is fetched to show a launch."""
    assert place_of(Model(source=source, sha256="0" * 64), SETTINGS) == Path(place)
