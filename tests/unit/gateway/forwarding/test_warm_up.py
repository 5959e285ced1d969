"""Files of hand-overs that nobody removed, and the prompts that connect engines."""

import os
from pathlib import Path

from headrace.gateway.forwarding.warm_up import OLD_S, remove_old, warm_up_request

NOW_AT = 1_700_000_000.0


def test_only_old_files_of_ours_are_removed(tmp_path: Path) -> None:
    """What is in use, and what somebody else keeps in the folder, stays."""
    ages_s = {
        "handover-old.bin": OLD_S + 1,
        "handover-new.bin": OLD_S - 1,
        "mine.bin": OLD_S + 1,
        "x.txt": 9e9,
    }
    for name, age_s in ages_s.items():
        (tmp_path / name).write_bytes(b"kv")
        os.utime(tmp_path / name, (NOW_AT - min(age_s, NOW_AT), NOW_AT - min(age_s, NOW_AT)))
    assert remove_old([tmp_path, tmp_path / "not-there"], NOW_AT) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["handover-new.bin", "mine.bin", "x.txt"]


def test_a_warm_up_is_never_answered_from_a_cache() -> None:
    """Each is another prompt, so that it is computed and moved."""
    one, two = warm_up_request("m", 32), warm_up_request("m", 32)
    assert one.body != two.body
    assert (one.is_stream, one.requested_model) == (True, "m")
