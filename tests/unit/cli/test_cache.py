"""What `headrace cache` prints."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from typer.testing import CliRunner

from headrace.cli.cache import app, cache_view, misses_view
from headrace.domain.miss_status import MissCause, MissRow, MissStatus
from headrace.domain.routing_status import EndpointCache, HitCounts, RoutingStatus


def shown(found: RoutingStatus) -> str:
    console = Console(width=200, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(cache_view(found))
    return capture.get()


def test_hits_are_shown_as_shares() -> None:
    """Tenants, families and endpoints each have their hit ratio; what was not measured says so."""
    counts = HitCounts(
        model="m", name="team-a", requests=4, input_tokens=1000, cached_tokens=250, expected_tokens=300
    )  # fmt: skip
    endpoint = EndpointCache(
        endpoint="p/0", model="m", blocks=7, held_tokens=900, capacity_tokens=4000, trust_ratio=0.9, requests=0,
        input_tokens=0, cached_tokens=0,
    )  # fmt: skip
    text = shown(RoutingStatus(workers=1, tenants=(counts,), families=(counts,), endpoints=(endpoint,)))
    assert text.count("25.0%") == 2
    for title in ("by tenant", "by family: prompts with the same first kilobyte", "by endpoint"):
        assert f"{title}" in text
    assert "\n\nby endpoint" in text, "an empty line between tables"
    assert any("p/0" in line and "not measured" in line and "90%" in line for line in text.splitlines())


def test_nothing_measured_is_said() -> None:
    """Before the first answer there is no table of zeros."""
    assert "nothing measured yet" in shown(RoutingStatus(workers=1, tenants=(), families=(), endpoints=()))


def missed(**more: Any) -> MissStatus:
    told: dict[str, Any] = {"answers": 20, "rows": ()}
    told.update(more)
    return MissStatus(workers=1, examined=18, explained=5, kept_bytes=9, cpu_s=0.1, **told)


def printed(renderable: Any) -> str:
    console = Console(width=400, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_misses_are_shown_with_place_and_advice() -> None:
    """Each row says cause, where it begins, what it costs an hour and what to do; and how much was looked at."""
    row = MissRow(
        model="m", tenant="team-a", alike="0a1b2c3d", cause=MissCause.TIMESTAMP, message=0, field="content",
        place="messages[0].content (system)", byte_offset=81, grain_bytes=20, token_offset=20, endpoint="p/0",
        requests=5, tokens_lost=2000, tokens_lost_per_hour=24000.0, advice="move the time",
    )  # fmt: skip
    text = printed(misses_view(missed(rows=(row,))))
    for part in ("timestamp", "messages[0].content (system), byte 81-100 (about token 20)", "24000", "move the time"):
        assert part in text
    assert "18 of 20 answers" in text
    assert "no misses to explain" in printed(misses_view(missed()))
    assert "nothing measured yet" in printed(misses_view(missed(answers=0)))


def test_two_files_are_compared_without_an_instance(tmp_path: Path) -> None:
    """`headrace cache explain A B` names the byte where they part, and exits with 3; equal ones with 0."""
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for path, day in zip(files, ("2026-11-30", "2026-12-01"), strict=True):
        text = f"Today is {day}. " + "The wheel turns by day and by night. " * 20
        path.write_text(json.dumps({"messages": [{"role": "system", "content": text}]}))
    found = CliRunner().invoke(app, ["explain", *map(str, files)])
    assert found.exit_code == 3
    assert "timestamp at messages[0].content (system), byte 15 (about token 3)" in found.output
    assert CliRunner().invoke(app, ["explain", str(files[0]), str(files[0]), "--json"]).exit_code == 0
    files[1].write_text("{")
    assert CliRunner().invoke(app, ["explain", *map(str, files)]).exit_code == 1
