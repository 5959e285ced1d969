"""The shape that nearly all messages of a chat have. Counterpart: `media.py`.

A module of its own, since `media.py` may be compiled (docs/decisions/0008), and what is decoded may not.
"""

import msgspec


class PlainMessage(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message as nearly all are: of a role and a text. Only `content` can hold a reference."""

    role: str
    content: msgspec.Raw
    name: str | None = None
