"""Which playbook goes with an engine's words."""

from collections.abc import Callable
from secrets import randbits, token_hex

from headrace.domain.request import ApiDialect
from headrace.engines.handover import HandoverWords, RoomWords, SlotWords
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.core.room_playbook import Meeting, RoomPlaybook
from headrace.gateway.handover.core.slot_playbook import SlotPlaybook
from headrace.gateway.handover.core.ticket_playbook import TicketPlaybook
from headrace.gateway.handover.core.tickets import SpentTickets

FILE_PREFIX = "handover-"
"""Names of files in the shared folder that are ours to remove."""


def make_playbook(
    words: HandoverWords,
    expected: Expected,
    *,
    api: ApiDialect,
    spent: SpentTickets,
    meeting_at: tuple[str, int],
    claim_slot: Callable[[], int | None],
) -> Playbook | None:
    """Return a playbook for one attempt, whose id nobody had before; None: prefill has no slot."""
    attempt_id = token_hex(16)
    if isinstance(words, SlotWords):
        slot = claim_slot()
        if slot is None:
            return None
        return SlotPlaybook(words, expected, file_name=f"{FILE_PREFIX}{attempt_id}.bin", prefill_slot=slot)
    if isinstance(words, RoomWords):
        host, port = meeting_at
        return RoomPlaybook(
            words, expected, attempt_id=attempt_id, meeting=Meeting(host=host, port=port, room=randbits(63))
        )
    return TicketPlaybook(words, spent, expected, attempt_id=attempt_id, api=api)
