"""Words between the gateway and the batch process beside it: who has submitted a batch, and where the two meet.

Both ends are reached through Unix sockets of mode 0600 in the run folder: this header is believed there only.
"""

import msgspec

SUBMITTER_HEADER = "x-headrace-submitter"
"""JSON of a Submitter."""
LINE_SOCKETS = "lines-*.sock"
"""Names of the sockets in the run folder at which gateway workers take lines."""


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """Whose request it is: enough to find the same caller again while its batch is being answered."""

    tenant: str
    key_id: str
    """Id of a key; `<issuer>:<subject>` for callers that are known by another name."""
    project: str | None = None
    is_key: bool = True
