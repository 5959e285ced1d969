"""docs/logs.md names exactly the fields of the request log."""

import re
from pathlib import Path

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
