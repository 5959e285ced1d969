"""docs/logs.md names exactly the fields of the request log."""

import re
from pathlib import Path

import msgspec

from headrace.gateway.accounting.log_line import LogLine


def test_the_page_names_every_field_and_no_other() -> None:
    """An operator who parses the log finds each field explained."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "logs.md").read_text()
    table = page.partition("| field | meaning |")[2]
    named = [
        name
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(named) == sorted(LogLine.__struct_fields__)


def test_what_is_not_known_is_left_out_of_the_line() -> None:
    """As the page says: a request that reached no engine has no empty engine, model or endpoint in its line."""
    line = LogLine(timestamp=1.0, service="headrace-gateway", request_id="r", trace_id="t", uid="u", status=401)
    assert sorted(msgspec.json.decode(msgspec.json.encode(line))) == sorted(
        ["timestamp", "service", "request_id", "trace_id", "uid", "status"]
    )
