"""The contract suite that every engine passes, here against the real one."""

import pytest
from tests.contract.checks import CHECKS, LIFE_CHECKS, Stand

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("name", CHECKS)
async def test_the_contract(stand: Stand, name: str) -> None:
    """The engine does behind the gateway what every engine must."""
    await CHECKS[name](stand)


@pytest.mark.parametrize("name", LIFE_CHECKS)
async def test_the_contract_of_start_and_end(stand: Stand, name: str) -> None:
    """The engine starts, drains and dies as callers and operators can rely on."""
    await LIFE_CHECKS[name](stand)
