"""SGLang's words of a hand-over. Source: srt/disaggregation and srt/entrypoints of 0.5.23, run on CPU."""

from headrace.engines.handover import FitRules, LegRequest, TensorRule


class SglangHandover:
    """See `handover.RoomWords`."""

    serves_whole = False
    """Neither half answers a request without a room."""
    fit_rules = FitRules(tensor=TensorRule.ONE_DIVIDES_OTHER, may_join_stages=True)
    """Source: sglang/srt/disaggregation/common/conn.py, which also refuses other page sizes and KV number formats. Only
    equal sizes were run."""

    def leg(self, attempt_id: str, *, room: int, host: str, port: int) -> LegRequest:
        """See `handover.RoomWords`. A leg without a room is refused."""
        fields = {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room, "rid": attempt_id}
        return LegRequest(fields=fields)

    def abort(self, attempt_id: str) -> LegRequest:
        """See `handover.RoomWords`. Whole answers notice a closed connection only after 3 s."""
        return LegRequest(path="/abort_request", fields={"rid": attempt_id})

    def is_transfer_error(self, body: bytes) -> bool:
        """See `handover.RoomWords`. Seen: 500 with this name 15 s after the prefill engine had died."""
        return b"KVTransferError" in body
