"""What of the gateway is rendered in a way that may surprise."""

from typing import Any

import pytest

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.render.core.gateway_notes import gateway_notes
from headrace.fleet.deploy.render.core.site import container_site, host_site

POSTGRES = {"image": "postgres:18.1"}
REDIS = {"image": "valkey/valkey:9.0"}


@pytest.mark.parametrize(
    ("sections", "keys"),
    [
        ({}, []),
        ({"ledger": {"database": "sqlite:////srv/x.db"}}, ["ledger.database"]),
        ({"ledger": {"database": "sqlite:////var/lib/headrace/x.db"}}, []),
        ({"deployment": {"postgres": POSTGRES}}, []),
        (
            {"deployment": {"postgres": POSTGRES}, "ledger": {"database": "postgresql+psycopg://db/x"}},
            ["deployment.postgres"],
        ),
        (
            {"deployment": {"redis": REDIS}, "gateway": {"sharing": {"redis": "redis://elsewhere:6379"}}},
            ["deployment.redis"],
        ),
    ],
)
def test_stores_that_would_be_lost_or_unused_are_said(sections: dict[str, Any], keys: list[str]) -> None:
    """A database file within a container, and a store that is deployed beside another."""
    declaration = Declaration.model_validate({"models": {"m": {}}, "pools": {"p": {"model": "m"}}, **sections})
    assert [note.key for note in gateway_notes(declaration, container_site(declaration))] == keys
    on_machine = [note.key for note in gateway_notes(declaration, host_site(declaration))]
    assert on_machine == [key for key in keys if key != "ledger.database"]
