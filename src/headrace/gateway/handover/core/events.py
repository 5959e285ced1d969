"""What happens to a disaggregated request (events), and what is to be done next (actions).

The shell that owns sockets turns answers into events and actions into requests; it decides nothing.
"""

from dataclasses import dataclass
from enum import StrEnum

from headrace.engines.handover import LegRequest


class Side(StrEnum):
    """Which of the two engines."""

    PREFILL = "prefill"
    DECODE = "decode"


class Leg(StrEnum):
    """One request of the hand-over."""

    PREFILL = "prefill"
    SAVE = "save"
    RESTORE = "restore"
    DECODE = "decode"

    @property
    def side(self) -> Side:
        return Side.PREFILL if self in (Leg.PREFILL, Leg.SAVE) else Side.DECODE


class HandoverFailure(StrEnum):
    """Why a hand-over did not come off; a metric label."""

    PREFILL_REFUSED = "prefill_refused"
    PREFILL_LOST = "prefill_lost"
    PREFILL_LATE = "prefill_late"
    PREFILL_UNREADABLE = "prefill_unreadable"
    """It answered without saying where the KV is."""
    TICKET_SPENT = "ticket_spent"
    """What it said was used before: decode could answer with another prompt's text."""
    TICKET_EXPIRED = "ticket_expired"
    """Decode had no room before the KV was given up."""
    TRANSFER_FAILED = "transfer_failed"
    TRANSFER_LATE = "transfer_late"
    TRANSFER_SHORT = "transfer_short"
    """Another number of tokens was moved than the prompt has."""
    FILE_TORN = "file_torn"
    """The file of a saved slot has not the bytes that the engine says it wrote: a full disk, a write that was cut."""
    DECODE_UNAVAILABLE = "decode_unavailable"
    DECODE_REFUSED = "decode_refused"
    DECODE_LOST = "decode_lost"
    DECODE_LATE = "decode_late"
    """No first token in time: the KV did not come, or decode hangs."""


class HandoverEnd(StrEnum):
    """How a playbook ended: exactly one of these, once."""

    COMPLETED = "completed"
    """Decode's answer, or prefill's where it was the whole, went to the caller."""
    FELL_BACK = "fell-back"
    """The request goes the aggregated way, under the same reservation."""
    PASSED_ON = "passed-on"
    """An engine found the caller's request wrong, and the caller is told so."""
    BROKEN = "broken"
    """The answer broke off after its first token: what follows is any stream's affair (resume, or an error)."""
    CALLER_LEFT = "caller-left"


# --- events ---


@dataclass(frozen=True, slots=True)
class LegAnswered:
    """A whole answer of success; of a decode leg: its end."""

    leg: Leg
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class LegRefused:
    """An answer that is an error."""

    leg: Leg
    status: int
    body: bytes = b""
    is_callers_fault: bool = False
    """By `Driver.translate_error`: every engine would refuse it."""


@dataclass(frozen=True, slots=True)
class LegLost:
    """The connection was refused or broke."""

    leg: Leg


@dataclass(frozen=True, slots=True)
class FirstTokenArrived:
    """Decode's first token is here; it goes to the caller."""


@dataclass(frozen=True, slots=True)
class LegOverdue:
    """`SendLeg.within_s` passed, and neither first token nor answer has come."""

    leg: Leg


@dataclass(frozen=True, slots=True)
class DecodeClaimed:
    """Decode has room. `slot`: which, where engines have slots."""

    slot: int | None = None


@dataclass(frozen=True, slots=True)
class FileWeighed:
    """How large the file is. None: it is not to be seen from here, or not in time."""

    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class DecodeUnavailable:
    """No decode engine has room within `ClaimDecode.within_s`."""


@dataclass(frozen=True, slots=True)
class CallerLeft:
    """Nobody waits for the answer."""


Event = (
    LegAnswered
    | LegRefused
    | LegLost
    | FirstTokenArrived
    | LegOverdue
    | DecodeClaimed
    | FileWeighed
    | DecodeUnavailable
    | CallerLeft
)

# --- actions ---


@dataclass(frozen=True, slots=True)
class SendLeg:
    """Send a request, and report `LegOverdue` where nothing came of it in time."""

    leg: Leg
    request: LegRequest
    within_s: float


@dataclass(frozen=True, slots=True)
class CancelLeg:
    """Close its connection, whatever comes of it."""

    leg: Leg


@dataclass(frozen=True, slots=True)
class ClaimDecode:
    """Find room at decode within this time."""

    within_s: float


@dataclass(frozen=True, slots=True)
class WeighFile:
    """Look how large a file of the shared folder is, and report it within this time."""

    name: str
    within_s: float


@dataclass(frozen=True, slots=True)
class FreeHeld:
    """Tell an engine to give up what it holds; its answer is not waited for, and may not come."""

    side: Side
    request: LegRequest
    then_removes: str | None = None
    """A file of the shared folder to remove once it has answered: a save that was cut may have gone on until then."""


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The slot may serve others, once the engine says it is idle."""

    side: Side
    slot: int


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove a file of the shared folder; one that is not there is fine."""

    name: str


@dataclass(frozen=True, slots=True)
class End:
    """The last action of all."""

    how: HandoverEnd
    failure: HandoverFailure | None = None
    leg: Leg | None = None
    """Whose answer is passed on."""
    at_fault: Side | None = None
    """Where the aggregated way had better not go."""


Action = SendLeg | CancelLeg | ClaimDecode | WeighFile | FreeHeld | FreeSlot | RemoveFile | End
