"""What one message of an engine says of its cache, whichever engine it was. Made by `batch.py` and `polled.py`."""

from dataclasses import dataclass
from enum import StrEnum

MOST_BLOCKS = 2**40
"""Of one cache, as an engine may say. Chosen: no engine holds as many, and what is made of them can be told."""
MOST_BLOCK_TOKENS = 2**20
"""Of one block. Chosen: far above any engine's page."""


class Tier(StrEnum):
    """Where blocks lie."""

    DEVICE = "device"
    BEYOND = "beyond"
    """Host memory or storage: still to be found, at a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Blocks can be found now."""

    blocks: int
    block_tokens: int | None
    """None: as the blocks before."""
    tier: Tier = Tier.DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Blocks were evicted."""

    blocks: int
    tier: Tier = Tier.DEVICE


@dataclass(frozen=True, slots=True)
class Cleared:
    """All blocks are forgotten at once."""


@dataclass(frozen=True, slots=True)
class Sized:
    """The cache was made, for so many blocks on the device; nothing is in it."""

    blocks: int


Change = Stored | Removed | Cleared | Sized


class MalformedError(Exception):
    """A message that is none of the known forms; the text says what is wrong with it, and holds nothing of it."""
