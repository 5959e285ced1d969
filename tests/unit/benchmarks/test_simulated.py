"""The measurement of a simulated engine's timing."""

import json
import re
import shutil

import pytest
from benchmarks import simulated


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="no C compiler for the load client")
def test_it_measures_streams_and_says_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    """A short run counts every token, and its verdict is the exit status."""
    status = simulated.main(["--streams", "4", "--chunks", "30", "--rounds", "1"])
    out = capsys.readouterr().out
    found = json.loads(out[: out.rindex("}") + 1])
    assert found["rounds"][0]["tokens"] == 120
    assert found["rounds"][0]["cpu_us_per_token"] > 0
    assert status == (3 if "NOT kept" in out else 0)
    assert re.search(r"\d+(\.\d+)? cores of other work", out)
