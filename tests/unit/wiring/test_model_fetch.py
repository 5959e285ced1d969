"""How far a fetch is, in words."""

from headrace.fleet.deploy.models import FetchPhase, FetchProgress
from headrace.wiring.model_fetch import describe


def progress(what: str, **more: object) -> FetchProgress:
    fields = {"done_bytes": 41_000_000, "total_bytes": 100_000_000, "rate_bytes_per_s": 12e6, **more}
    return FetchProgress(phase=FetchPhase.DOWNLOADING, what=what, **fields)  # pyright: ignore[reportArgumentType]


def test_a_fetch_is_told_in_one_line() -> None:
    """What, how much of how much, how fast."""
    assert describe(progress("model.gguf")) == "downloading model.gguf: 41% of 100.0 MB, 12.0 MB/s"


def test_a_checksum_is_shown_short() -> None:
    """A file that is known by its checksum alone does not fill the line with it."""
    assert describe(progress("ab" * 32)).startswith("downloading abababababab: 41%")
