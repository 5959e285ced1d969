"""The record's encoding, and what becomes of records of older and newer versions."""

import msgspec

from headrace.ledger.record import RECORD_FIELDS, RequestRecord, decode_rows, encode_record


def _frame_payload(*records: bytes) -> bytes:
    return b"\xdd" + len(records).to_bytes(4, "big") + b"".join(records)


def test_a_record_becomes_a_row_in_the_order_of_its_fields():
    """What is written is what is read, None included."""
    record = RequestRecord(uid="u", request_id="r", received_at=1.5, outcome="completed", output_tokens=7)
    (row,) = decode_rows(_frame_payload(encode_record(record)))
    assert dict(zip(RECORD_FIELDS, row, strict=True)) == msgspec.structs.asdict(record)


def test_fields_that_an_older_version_did_not_know_get_their_defaults():
    """A journal left by the version before is still projected."""
    record = RequestRecord(uid="u", request_id="r", received_at=1.5, outcome="completed", attempts=3, http_status=200)
    attempts_at = RECORD_FIELDS.index("attempts")
    older = msgspec.msgpack.encode(list(msgspec.structs.astuple(record))[:attempts_at])
    (row,) = decode_rows(_frame_payload(older))
    later = len(RECORD_FIELDS) - attempts_at - 1
    assert row[attempts_at - 1 :] == [200, 0, *[None] * later]


def test_fields_of_a_newer_version_are_left_out():
    """After going back a version, its journal is still projected."""
    newer = msgspec.msgpack.encode([*range(len(RECORD_FIELDS)), "more"])
    (row,) = decode_rows(_frame_payload(newer))
    assert row == list(range(len(RECORD_FIELDS)))
