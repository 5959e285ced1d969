"""docs/tenants.md names every route of the control API."""

import re
from pathlib import Path

from headrace.control_api.routes import ROUTES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tenants.md"


def test_the_page_names_every_route() -> None:
    """An operator finds each path, and the role that it asks for."""
    page = PAGE.read_text()
    for route in ROUTES:
        name = re.sub(r"\{[^}]*key_id[^}]*\}", "ID", route.path.removeprefix("/api/v1/"))
        name = re.sub(r"\{[^}]*\}", "NAME", name)
        spellings = (f"`{name}`", f"`/api/v1/{name}`", f" /api/v1/{name}`", f"`{name.removeprefix('/')}", f" {name}`")
        ends = (f".../{name.rpartition('/')[2]}",) if name.endswith(("/suspend", "/resume")) else ()
        assert any(spelling in page for spelling in (*spellings, *ends)), route.path
