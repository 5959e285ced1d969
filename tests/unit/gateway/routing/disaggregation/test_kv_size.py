"""How many bytes a prompt's KV has."""

from dataclasses import dataclass

import pytest

from headrace.declaration.handover_plan import HandoverPlan
from headrace.gateway.routing.disaggregation.kv_size import GUESSED_BYTES, KvSizes

QWEN = "hf:Qwen/Qwen2.5-7B-Instruct@main"


@dataclass
class Pool:
    handover: HandoverPlan | None


@dataclass
class Place:
    plan: Pool


def sized(plan: HandoverPlan | None) -> tuple[float, bool]:
    sizes, place = KvSizes(), Place(Pool(plan))
    return sizes.size(place, 10.0), sizes.is_known(place)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("plan", "token_bytes"),
    [
        (HandoverPlan(role="prefill", kv_bytes_per_token=1000), 1000),
        (HandoverPlan(role="prefill", source=QWEN), 28 * 4 * 128 * 2 * 2),
        (
            HandoverPlan(role="prefill", source=QWEN, kv_dtype="fp8_e4m3"),
            28 * 4 * 128 * 2,
        ),
    ],
)
def test_declared_or_from_the_catalogue(plan: HandoverPlan, token_bytes: float) -> None:
    """The number format of the cache counts."""
    assert sized(plan) == (10 * token_bytes, True)


@pytest.mark.parametrize(
    "plan", [None, HandoverPlan(role="prefill"), HandoverPlan(role="prefill", source="file:/m.gguf")]
)
def test_what_is_not_known_is_guessed_and_never_counted(plan: HandoverPlan | None) -> None:
    """Predictions learn by time alone; metrics of bytes stay empty."""
    assert sized(plan) == (10 * GUESSED_BYTES, False)
