"""What `headrace reload` says."""

from headrace.cli.reload import reload_text
from headrace.control_api.operations import PoolChange, ReloadReport

REPLACED = PoolChange(pool="chat", starts=("chat/1",), ends=("chat/0",))


def said(*pools: PoolChange, is_dry_run: bool = False, is_waiting: bool = False, failure: str | None = None) -> str:
    report = ReloadReport(
        ok=True, is_dry_run=is_dry_run, is_upgrade=False, plan_revision=2, changes=("a: 1 -> 2",), pools=pools
    )
    return reload_text(report, is_waiting=is_waiting, failure=failure)


def test_what_is_under_way_is_not_called_done() -> None:
    """Only a change that touches no replica is applied when the command returns."""
    assert said() == "a: 1 -> 2\napplied"
    text = said(REPLACED)
    assert "\napplied" not in text
    assert "still under way:\npool chat: chat/1 starts; chat/0 ends once the gateway uses the new" in text
    assert "headrace reload --wait" in text


def test_a_dry_run_names_the_replicas() -> None:
    """Those that would go and come, or that there are none."""
    assert "pool chat: chat/1 would start; chat/0 would end" in said(REPLACED, is_dry_run=True)
    assert "no replica would be started or ended" in said(is_dry_run=True)
    ending = PoolChange(pool="chat", ends=("chat/1", "chat/2"))
    assert "chat/1, chat/2 would end once the requests in flight are finished" in said(ending, is_dry_run=True)


def test_a_failure_is_said_with_what_goes_on() -> None:
    """The reason, and that callers are still served by what was there before."""
    text = said(REPLACED, is_waiting=True, failure="chat/1 has failed: checksum mismatch")
    assert "chat/1 has failed: checksum mismatch\nWhat served before goes on" in text


def test_wait_and_dry_run_exclude_each_other(run) -> None:
    """Wrong usage, said before anything is asked."""
    ran = run("reload", "--wait", "--dry-run")
    assert ran.code == 2
    assert "exclude each other" in ran.err
