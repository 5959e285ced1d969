"""Small questions to an engine, beside the requests: probes of its readiness, readings of its metrics."""

import asyncio

import structlog

from headrace.engines.contract import ProbeReply
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.http.engine_connection import LossReason

log = structlog.get_logger("headrace.gateway")


class QuestionAnswer:
    """Collects the reply to one question."""

    def __init__(self, loop: asyncio.AbstractEventLoop, body_bytes: int) -> None:
        self.reply: asyncio.Future[ProbeReply] = loop.create_future()
        self._status = 0
        self._left_bytes = body_bytes
        self._blocks: list[bytes] = []

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self._status = status

    def answer_bytes(self, data: bytes) -> None:
        self._blocks.append(data[: self._left_bytes])
        self._left_bytes = max(0, self._left_bytes - len(data))

    def answer_complete(self) -> None:
        self._settle(ProbeReply(status=self._status, body=b"".join(self._blocks)))

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self._settle(ProbeReply(status=None, is_refused=reason is LossReason.CONNECT, detail=detail))

    def crashed(self, bug: Exception) -> None:
        log.error("internal bug in a question to an engine", error=repr(bug), exc_info=bug)
        self._settle(ProbeReply(status=None, detail="a fault of headrace itself; its log has the traceback"))

    def _settle(self, reply: ProbeReply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)


async def ask(
    endpoint: Endpoint, path: str, *, timeout_s: float, body_bytes: int, method: bytes = b"GET", body: bytes = b""
) -> ProbeReply:
    """Ask `path` by GET, or by POST with a JSON body or none, and wait for the reply, at most `timeout_s`; what is
    longer than `body_bytes` is cut off."""
    answer = QuestionAnswer(asyncio.get_running_loop(), body_bytes)
    length = b"content-length: %d\r\n" % len(body) if method == b"POST" else b""
    length += b"content-type: application/json\r\n" if body else b""
    target = endpoint.heads.prefix + path.encode("ascii")
    head = b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, target, endpoint.heads.lines, length)
    # Never on a pooled connection: one that went stale would be taken for a dead engine.
    sending = endpoint.connections.send(head, body, answer, fresh=True)
    try:
        async with asyncio.timeout(timeout_s):
            return await answer.reply
    except TimeoutError:
        sending.cancel()
        return ProbeReply(status=None, is_timeout=True)
    except asyncio.CancelledError:
        sending.cancel()
        raise
