"""Request uids: unique, and in the order of time."""

from headrace.ledger.uid import UidSource


def test_uids_are_32_hex_digits_and_never_repeat():
    """Two workers at the same millisecond make different uids."""
    one, other = UidSource(), UidSource()
    uids = {source.make_uid(1_700_000_000.123) for source in (one, other) for _ in range(1000)}
    assert len(uids) == 2000
    assert all(len(uid) == 32 and int(uid, 16) for uid in uids)


def test_uids_sort_by_time():
    """Rows arrive at the end of the ledger's key."""
    source = UidSource()
    uids = [source.make_uid(at) for at in (1_600_000_000.0, 1_600_000_000.001, 1_700_000_000.0, 1_700_000_000.0)]
    assert uids == sorted(uids)
