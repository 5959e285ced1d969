"""The append-only answers of a batch: over crashes and failed writes, each line is there once."""

import resource
from pathlib import Path

import msgspec
import pytest

from headrace.batch.objects import Counts
from headrace.batch.results import BatchResults, Result


def open_results(folder: Path, total: int = 5) -> BatchResults:
    return BatchResults(folder / "out", folder / "err", "batch_1", total)


def answer(index: int, *, is_error: bool = False) -> Result:
    return Result(index=index, custom_id=f"n{index}", is_error=is_error, response={"status_code": 200})


def names_in(path: Path) -> list[str]:
    return [msgspec.json.decode(text)["custom_id"] for text in path.read_bytes().splitlines()]


async def test_what_is_written_is_known_after_a_crash(tmp_path: Path) -> None:
    """Answers of both kinds are found again, and an answer that is written twice is there once."""
    results = open_results(tmp_path)
    await results.append(answer(3))
    await results.append(answer(1, is_error=True))
    again = open_results(tmp_path)
    await again.append(answer(3))

    assert Counts(total=5, completed=1, failed=1) == again.counts
    assert [again.is_answered(index) for index in range(5)] == [False, True, False, True, False]
    assert (names_in(tmp_path / "out"), names_in(tmp_path / "err")) == (["n3"], ["n1"])


@pytest.mark.parametrize("cut_bytes", [1, 5, 40])
async def test_a_torn_record_is_cut_off(tmp_path: Path, cut_bytes: int) -> None:
    """Half a record at the end is no answer: its line is sent again, and the file stays whole lines."""
    results = open_results(tmp_path)
    for index in (0, 1):
        await results.append(answer(index))
    output = tmp_path / "out"
    output.write_bytes(output.read_bytes()[:-cut_bytes])
    again = open_results(tmp_path)
    await again.append(answer(1))

    assert names_in(output) == ["n0", "n1"]


async def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """On a full disk the answer is refused whole, and can be written once there is room."""
    results = open_results(tmp_path)
    await results.append(answer(0))
    before = (tmp_path / "out").stat().st_size
    bounds = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 10, bounds[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await results.append(answer(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, bounds)
    assert (before, False) == ((tmp_path / "out").stat().st_size, results.is_answered(1))
    await results.append(answer(1))

    assert names_in(tmp_path / "out") == ["n0", "n1"]


def test_files_without_answers_do_not_stay(tmp_path: Path) -> None:
    """A batch without errors has no error file."""
    results = open_results(tmp_path)
    results.write([answer(0)])
    results.close()

    assert [path.name for path in tmp_path.iterdir()] == ["out"]
