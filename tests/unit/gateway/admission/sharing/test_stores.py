from pathlib import Path

import pytest

from headrace.declaration.sharing_plan import SharedThrough, SharingPlan
from headrace.gateway.admission.sharing.stores import SharingUnavailableError, open_keeper


def test_one_worker_alone_shares_with_nobody(tmp_path: Path) -> None:
    """Without Redis and with one worker, limits are the process's own."""
    assert open_keeper(SharingPlan(), tmp_path / "leases.sock") is None


async def test_a_url_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A wrong port in the URL stops the start with the setting's name."""
    plan = SharingPlan(through=SharedThrough.REDIS, redis="redis://127.0.0.1:notaport/0")
    with pytest.raises(SharingUnavailableError, match=r"gateway\.sharing\.redis"):
        open_keeper(plan, tmp_path / "leases.sock")
