"""What decoding JSON or MessagePack that others wrote may raise: one tuple, so that no place forgets one of its kinds.

`tests/docs/test_undecodable.py` sees to it that it is used.
"""

from typing import Final

import msgspec

UNDECODABLE: Final[tuple[type[Exception], ...]] = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Not of that form or of another shape; text that is not UTF-8; nested deeper than can be read, which any sender may
cause with a few kilobytes."""
