"""Carries one batch from validation to its files; begun anew after a crash, it sends only what has no answer yet.

Cancelled at any await, it leaves everything as a crash would: `close_out` or the next run goes on from there.
"""

import asyncio
from time import monotonic
from typing import Any

import httpx
import msgspec
import structlog

from headrace.batch.core.lines import Line, LineError, LineRefusedError, read_line
from headrace.batch.core.verdict import SHORT_WAIT_S, Judgement, Verdict, judge
from headrace.batch.input import iter_lines, validate
from headrace.batch.objects import BatchStatus, Counts, StoredBatch, StoredFile, entered
from headrace.batch.results import BatchResults, Result
from headrace.batch.sender import GatewayAwayError, LineSender, Reply
from headrace.batch.store import BatchStore
from headrace.declaration.batch_section import DAY_S, BatchPlan
from headrace.domain.clock import Clock
from headrace.domain.undecodable import UNDECODABLE

log = structlog.get_logger("headrace.batch")
DISK_WAIT_S = 5.0
"""Between two attempts to write an answer while the disk is full. Chosen."""
REST_WRITTEN_TOGETHER = 256
UNANSWERED = {
    BatchStatus.EXPIRED: ("batch_expired", "the batch's window ended before this line was answered"),
    BatchStatus.CANCELLED: ("batch_cancelled", "the batch was cancelled before this line was answered"),
}


class BatchRunner:
    """One batch at work. Concurrency: one task of the event loop; `counts` may be read any time."""

    def __init__(
        self,
        batch: StoredBatch,
        store: BatchStore,
        sender: LineSender,
        slots: asyncio.Semaphore,
        plan: BatchPlan,
        clock: Clock,
    ) -> None:
        self._batch = batch
        self._store = store
        self._sender = sender
        self._slots = slots
        self._plan = plan
        self._clock = clock
        self._results: BatchResults | None = None
        self._not_before_mono_s = 0.0
        """Until then no line of this batch is sent: one was refused for a reason that concerns all."""

    @property
    def counts(self) -> Counts:
        return self._results.counts if self._results is not None else self._batch.counts

    async def run(self) -> None:
        """Bring the batch to its end. Raises: OSError, sqlite3.Error; then it may be run again."""
        if self._batch.status is BatchStatus.VALIDATING and not await self._validate():
            return
        results = self._results = await asyncio.to_thread(self._open_results)
        try:
            await self._send_all(results)
            self._keep(entered(self._batch, BatchStatus.FINALIZING, self._clock.wall_s()))
            self._finish(BatchStatus.COMPLETED, results)
        finally:
            await results.settle()
            results.close()

    async def close_out(self, status: BatchStatus) -> None:
        """End the batch as `status`: lines without an answer get one that says so. Raises: as `run`."""
        if self._batch.counts.total == 0:
            self._keep(entered(self._batch, status, self._clock.wall_s()))
            return
        results = self._results = await asyncio.to_thread(self._open_results)
        try:
            await results.write_alone(lambda: self._answer_rest(results, status))
            self._finish(status, results)
        finally:
            await results.settle()
            results.close()

    # --- validation and end

    @property
    def is_validating(self) -> bool:
        return self._batch.status is BatchStatus.VALIDATING

    def give_up(self, problem: LineError) -> None:
        """End a batch that cannot be validated. Raises: OSError, sqlite3.Error."""
        self._keep(entered(self._batch, BatchStatus.FAILED, self._clock.wall_s(), errors=(problem,)))

    async def _validate(self) -> bool:
        found = await asyncio.to_thread(
            validate,
            self._store.path_of(self._batch.input_file_id),
            self._batch.endpoint,
            most_lines=self._plan.lines,
            line_bytes=self._plan.line_bytes,
        )
        now_at = self._clock.wall_s()
        if found.errors:
            self._keep(entered(self._batch, BatchStatus.FAILED, now_at, errors=found.errors))
            return False
        self._keep(entered(self._batch, BatchStatus.IN_PROGRESS, now_at, counts=Counts(total=found.total)))
        return True

    def _open_results(self) -> BatchResults:
        batch = self._batch
        output, errors = self._store.path_of(batch.output_file_id), self._store.path_of(batch.error_file_id)
        return BatchResults(output, errors, batch.batch_id, batch.counts.total)

    def _finish(self, status: BatchStatus, results: BatchResults) -> None:
        batch, now_at = self._batch, self._clock.wall_s()
        files: list[StoredFile] = []
        for kind, file_id, size in (
            ("output", batch.output_file_id, results.output_bytes),
            ("error", batch.error_file_id, results.error_bytes),
        ):
            if size:
                files.append(
                    StoredFile(
                        file_id=file_id,
                        tenant=batch.tenant,
                        filename=f"{batch.batch_id}_{kind}.jsonl",
                        purpose="batch_output",
                        bytes_=size,
                        created_at=now_at,
                        expires_at=now_at + self._plan.retention_days * DAY_S,
                    )
                )
        done = entered(
            batch,
            status,
            now_at,
            counts=results.counts,
            has_output=results.output_bytes > 0,
            has_errors=results.error_bytes > 0,
        )
        self._keep(done, files)
        log.info("batch ended", batch=batch.batch_id, status=status.value, lines=results.counts.total)

    def _answer_rest(self, results: BatchResults, status: BatchStatus) -> None:
        code, message = UNANSWERED[status]
        rest: list[Result] = []
        for index, text in self._iter_lines():
            if results.is_answered(index):
                continue
            custom_id = read_line(text, index + 1, self._batch.endpoint).custom_id
            problem = {"code": code, "message": message}
            rest.append(Result(index=index, custom_id=custom_id, is_error=True, error=problem))
            if len(rest) >= REST_WRITTEN_TOGETHER:
                results.write(rest)
                rest = []
        results.write(rest)

    def _iter_lines(self) -> Any:
        return iter_lines(self._store.path_of(self._batch.input_file_id), self._plan.line_bytes)

    def _keep(self, batch: StoredBatch, files: list[StoredFile] | None = None) -> None:
        self._store.put_batch(batch, files or ())
        self._batch = batch

    # --- lines

    async def _send_all(self, results: BatchResults) -> None:
        window = asyncio.Semaphore(self._plan.concurrency)

        async def answer(index: int, text: bytes) -> None:
            try:
                line = await self._read(index, text)
                await self._write(results, await self._answer(index, line))
            finally:
                window.release()

        async with asyncio.TaskGroup() as group:
            for index, text in self._iter_lines():
                if not results.is_answered(index):
                    await window.acquire()
                    group.create_task(answer(index, text))

    async def _read(self, index: int, text: bytes) -> Line:
        try:
            return read_line(text, index + 1, self._batch.endpoint)
        except LineRefusedError:  # nested so deeply that only an empty stack has room for it, as validation's had
            return await asyncio.to_thread(read_line, text, index + 1, self._batch.endpoint)

    async def _answer(self, index: int, line: Line) -> Result:
        """Send the line until it has an answer."""
        broken = 0
        while True:
            while (wait_s := self._not_before_mono_s - monotonic()) > 0:  # noqa: ASYNC110 (others may put it off)
                await asyncio.sleep(wait_s)
            reply, judgement = await self._send(index, line, broken + 1)
            if judgement.verdict in (Verdict.ANSWERED, Verdict.FAILED):
                return _result(index, line, reply, is_error=judgement.verdict is Verdict.FAILED)
            if judgement.verdict is Verdict.AGAIN:
                self._not_before_mono_s = max(self._not_before_mono_s, monotonic() + judgement.wait_s)
            else:
                broken += 1
                await asyncio.sleep(judgement.wait_s)

    async def _send(self, index: int, line: Line, attempt: int) -> tuple[Reply | None, Judgement]:
        batch = self._batch
        try:
            async with self._slots:
                reply = await self._sender.send(line, batch.endpoint, batch.submitter, f"{batch.batch_id}-{index}")
        except GatewayAwayError:
            return None, Judgement(Verdict.AGAIN, SHORT_WAIT_S)
        except httpx.HTTPError:
            return None, judge(502, None, None, attempt)
        return reply, judge(reply.status, reply.code, reply.retry_after_s, attempt)

    async def _write(self, results: BatchResults, result: Result) -> None:
        while True:
            try:
                await results.append(result)
                return
            except OSError as error:
                log.error("an answer cannot be written; it is tried again", error=str(error), wait_s=DISK_WAIT_S)
                await asyncio.sleep(DISK_WAIT_S)


def _result(index: int, line: Line, reply: Reply | None, *, is_error: bool) -> Result:
    if reply is None:
        problem = {"code": "stream_broken", "message": "the gateway ended in the middle of the answer, each time"}
        return Result(index=index, custom_id=line.custom_id, is_error=True, error=problem)
    try:
        # Written anew, since a record is one line whatever the engine's layout; here, where a failure is seen.
        body = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(reply.body)))
    except UNDECODABLE:
        body = reply.body.decode("utf-8", "replace")
    response = {"status_code": reply.status, "request_id": reply.request_id, "body": body}
    return Result(index=index, custom_id=line.custom_id, is_error=is_error, response=response)
