"""What `headrace route explain` prints."""

from rich.console import Console

from headrace.cli.route import explanation_view
from headrace.domain.routing_status import CandidateView, ModelView, RouteExplanation


def shown(found: RouteExplanation) -> str:
    console = Console(width=200, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(explanation_view(found))
    return capture.get()


def explanation(**more: object) -> RouteExplanation:
    values: dict[str, object] = {
        "worker_pid": 1, "model": "m", "request_class": "standard", "tenant": "team-a", "input_tokens": 900,
        "blocks": 8, "output_tokens": 250, "picked": "p/1", "reason": "lowest cost", "candidates": (),
    }  # fmt: skip
    return RouteExplanation(**{**values, **more})  # pyright: ignore[reportArgumentType]


def test_every_candidate_has_its_row() -> None:
    """The pick comes with its cost and the parts of it, those left out with the reason."""
    picked = CandidateView(
        endpoint="p/1", pool="p", outcome="picked", in_flight=2, queued_tokens=10, cached_tokens=800,
        uncached_tokens=100, speed_factor=1.0, cost_s=0.123, parts_s={"predicted-ttft": 0.1, "prefill-work": 0.023},
    )  # fmt: skip
    left = CandidateView(endpoint="p/2", pool="p", outcome="filtered", reason="draining: asked to")
    text = shown(explanation(candidates=(picked, left)))
    assert "picked p/1 (lowest cost)" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("p/1 *"))
    assert [word for word in row.split() if word[0].isdigit()] == [
        "0.1230",
        "0.1000",
        "0.0230",
        "2",
        "10",
        "800",
        "100",
    ]
    assert any("p/2" in line and "draining: asked to" in line for line in text.splitlines())


def test_nothing_that_can_answer_is_said() -> None:
    """Without a usable endpoint the reason stands where the pick would."""
    text = shown(explanation(picked=None, reason="no endpoint is ready", output_tokens=None))
    assert "nothing can answer: no endpoint is ready" in text


def test_models_of_a_name_have_their_rows() -> None:
    """Where the name stands for several models, each has its parts, and who was left out its reason."""
    picked = ModelView(
        model="small", outcome="picked", reason="lowest price", endpoint="p/1", quality=0.4, wait_s=1.0, ttft_s=0.25,
        latency_s=2.0, price_nanos=2_500_000, cached_tokens=0, cost_s=2.5,
        parts_s={"latency": 2.0, "price": 0.5, "quality": 0.0},
    )  # fmt: skip
    left = ModelView(model="large", outcome="filtered", reason="model 'large' has 1 endpoints, 0 ready")
    models = (picked, left)
    text = shown(explanation(requested_model="auto-chat", prefer="cheapest", model="small", models=models))
    assert "auto-chat prefers cheapest: small (lowest price)" in text
    row = next(line for line in text.splitlines() if line.lstrip().startswith("small *"))
    assert row.split()[2:] == ["2.500", "2.000", "0.500", "0.000", "1.250", "0.002500", "0.4", "0"]
    assert any("large" in line and "0 ready" in line for line in text.splitlines())
