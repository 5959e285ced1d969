"""The error event that ends a broken stream."""

import json

import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.gateway.forwarding.in_band import error_event
from headrace.gateway.http.sse import event_field, iter_events

ERROR = RequestError(ErrorCode.STREAM_BROKEN, 'the engine "p/0" died\n\nand\r\nmore', param="x")


@pytest.mark.parametrize("dialect", list(ApiDialect))
def test_the_error_is_one_event_with_our_code(dialect: ApiDialect) -> None:
    """Line ends in a message cannot break out of the event; success is never marked."""
    event = error_event(ERROR, dialect)
    assert iter_events(event) == [event]
    assert event.endswith(b"\n\n")
    assert b"[DONE]" not in event
    payload = json.loads(event_field(event, b"data") or b"")
    inner = payload.get("error", payload)
    assert (inner["code"], inner["message"]) == ("stream_broken", ERROR.message)


@pytest.mark.parametrize("dialect", [ApiDialect.RESPONSES, ApiDialect.MESSAGES])
def test_typed_dialects_name_the_event(dialect: ApiDialect) -> None:
    """Their clients look at the type."""
    event = error_event(ERROR, dialect)
    assert event_field(event, b"event") == b"error"
    assert json.loads(event_field(event, b"data") or b"")["type"] == "error"
