"""The explanation as a header line."""

import json

from headrace.domain.routing_status import CandidateView, RouteExplanation
from headrace.gateway.routing.debug_header import SHOWN_CANDIDATES, route_line


def test_it_is_one_line_of_ascii_that_stays_short() -> None:
    """Whatever endpoints are called and however many there are, a client's parser takes the line."""
    rows = tuple(
        CandidateView(endpoint=f"pool-é/{number}", pool="p", outcome="scored", cost_s=0.1, parts_s={"x": 0.1})
        for number in range(300)
    )
    found = RouteExplanation(
        worker_pid=1, model="m", request_class="standard", tenant="t", input_tokens=1, blocks=0, output_tokens=1,
        picked="pool-é/0", reason="lowest cost", candidates=rows,
    )  # fmt: skip
    line = route_line(found)
    assert line.startswith(b"x-headrace-route: {")
    assert line.endswith(b"\r\n")
    assert line.isascii()
    assert len(line) < 4096
    told = json.loads(line.removeprefix(b"x-headrace-route: ").replace(b"\\xe9", b"?"))
    assert len(told["candidates"]) == SHOWN_CANDIDATES
    assert told["left_out"] == 300 - SHOWN_CANDIDATES
