"""Where a delivery stands."""

from enum import Enum, auto


class Phase(Enum):
    PAUSE = auto()
    """Between two attempts."""
    SENT = auto()
    """Waiting for the head of an answer."""
    WHOLE = auto()
    ERROR = auto()
    STREAM = auto()
    TAIL = auto()
    """The caller has everything; the engine's message has not ended yet."""
    ENDED = auto()


PAUSE, SENT, WHOLE, ERROR, STREAM, TAIL, ENDED = Phase
"""Module names: looking a member up on its class costs a tenth of a microsecond, several times a request."""
