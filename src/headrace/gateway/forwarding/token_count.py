"""Asks an engine for the tokens of a text: engines that fall behind send several in one event."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.continuation import Tokenizing
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.http.engine_connection import LossReason

PATIENCE_S = 1.0
"""An answer that takes longer is done without: the events that were sent are counted. Chosen."""


ANSWER_BYTES = 32 * 1024 * 1024
"""A longer answer is done without. Chosen: some twenty bytes for each token of the longest text that is kept."""

Told = Callable[[list[int] | None], None]


class Counted(msgspec.Struct):
    tokens: list[int] | None = None


_decode = msgspec.json.Decoder(Counted).decode


class TokenCount:
    """One question. Implements `AnswerReader`; `told` is called once, with None where there is no answer."""

    def __init__(self, endpoint: Endpoint, question: Tokenizing, text: str, told: Told) -> None:
        self._told: Told | None = told
        self._blocks: list[bytes] = []
        self._size_bytes = 0
        self._status = 0
        fields = {question.text_field: text, **question.flags, "model": endpoint.plan.served_model}
        body = msgspec.json.encode(fields)
        heads = endpoint.heads
        head = b"POST %b%b HTTP/1.1\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (
            heads.prefix,
            question.path.encode("ascii"),
            heads.lines,
            len(body),
        )
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, self._tell, None)
        self._sending = endpoint.connections.send(head, body, self, fresh=True)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status

    def answer_bytes(self, data: bytes) -> None:
        self._size_bytes += len(data)
        if self._size_bytes <= ANSWER_BYTES:
            self._blocks.append(data)

    def answer_complete(self) -> None:
        tokens: list[int] | None = None
        if self._status == 200 and self._size_bytes <= ANSWER_BYTES:
            with contextlib.suppress(*UNDECODABLE):
                tokens = _decode(b"".join(self._blocks)).tokens
        self._tell(tokens)

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self._tell(None)

    def crashed(self, bug: Exception) -> None:
        self._tell(None)

    def _tell(self, tokens: list[int] | None) -> None:
        told, self._told = self._told, None
        if told is None:
            return
        if self._timer.when() <= asyncio.get_running_loop().time():
            self._sending.cancel()
        self._timer.cancel()
        told(tokens)
