"""Workloads: small files, the same arrivals every time."""

from pathlib import Path

import msgspec
import pytest

from headrace.rehearsal.workload import Lengths, TenantLoad, Workload, iter_arrivals, read_workload

LENGTHS = Lengths(least=1, most=9)
TWO = Workload(
    seed=1,
    duration_s=200.0,
    tenants=(
        TenantLoad(tenant="a", per_s=5.0, input_tokens=LENGTHS, output_tokens=LENGTHS),
        TenantLoad(tenant="b", per_s=1.0, input_tokens=LENGTHS, output_tokens=LENGTHS, from_s=50.0, until_s=60.0),
    ),
)


def test_arrivals_come_in_order_at_their_rate():
    """Five a second for 200 seconds are about a thousand, in order, within their lengths and times."""
    arrivals = list(iter_arrivals(TWO))
    assert [each.at_s for each in arrivals] == sorted(each.at_s for each in arrivals)
    first = [each for each in arrivals if each.load.tenant == "a"]
    assert 900 < len(first) < 1100
    assert all(1 <= each.input_tokens <= 9 and 1 <= each.output_tokens <= 9 for each in arrivals)
    assert all(50 <= each.at_s < 60 for each in arrivals if each.load.tenant == "b")


def test_a_tenants_arrivals_are_the_same_with_and_without_the_others():
    """What one tenant sends does not depend on who else is there, so that runs can be compared."""
    together = [each for each in iter_arrivals(TWO) if each.load.tenant == "b"]
    assert together == list(iter_arrivals(TWO.only("b")))
    assert len(list(iter_arrivals(TWO.lasting(55.0)))) < len(list(iter_arrivals(TWO)))


def test_a_file_with_an_unknown_word_is_refused(tmp_path: Path):
    """A misspelt key of a workload is an error, never ignored."""
    path = tmp_path / "w.json"
    path.write_bytes(msgspec.json.encode(TWO))
    assert read_workload(path) == TWO
    path.write_text('{"seed": 1, "duration_s": 1, "tenants": [], "speed": 2}')
    with pytest.raises(msgspec.ValidationError, match="speed"):
        read_workload(path)
