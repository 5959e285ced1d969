"""docs/callers.md names the headers that the gateway reads and sends."""

import re
from pathlib import Path

import headrace.gateway
from headrace.gateway.entry.own_answers import EXPOSED

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(
    r'\bb?["\'](x-(?:headrace|request|should|api)[a-z-]*|retry-after|traceparent|tracestate|idempotency-key)'
)
BETWEEN_PROCESSES = {"x-headrace-submitter"}
"""Of the batch process, to workers, over their own socket."""


def test_the_page_names_every_header_that_the_gateway_knows() -> None:
    """Whoever writes a client finds each header, and what it does, on one page."""
    page = (ROOT / "docs" / "callers.md").read_text()
    sources = Path(headrace.gateway.__file__).parent.rglob("*.py")
    known = {name for path in sources for name in NAMED.findall(path.read_text())} - BETWEEN_PROCESSES
    assert {"x-headrace-class", "x-request-timeout", "x-headrace-model", "x-headrace-degraded"} <= known
    assert sorted(name for name in known if f"`{name}" not in page) == []


def test_pages_in_browsers_may_read_what_the_page_names() -> None:
    """Of an answer, all but the explanation for operators."""
    exposed = set(EXPOSED.decode().split(", "))
    assert {"x-headrace-model", "x-headrace-degraded", "x-request-id", "x-ratelimit-reset-tokens"} <= exposed
    assert "x-headrace-route" not in exposed
