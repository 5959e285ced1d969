"""`/v1/files` and `/v1/batches`, as OpenAI's clients speak them. Reached through the gateway, which says who calls.

What another tenant has is not found, whatever is asked. Counterpart: `gateway/batches/relay.py`.
"""

import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from headrace.batch.creation import BatchWish, make_batch
from headrace.batch.desk import BatchDesk
from headrace.batch.objects import StoredBatch, StoredFile, show_batch, show_file
from headrace.batch.store import BatchStore
from headrace.batch.uploads import Form, keep_form, make_file, make_file_id, receive_form
from headrace.declaration.batch_section import DAY_S, BatchPlan
from headrace.domain.batch import SUBMITTER_HEADER, Submitter
from headrace.domain.clock import Clock
from headrace.domain.errors import ErrorCode, RequestError, error_body
from headrace.domain.undecodable import UNDECODABLE

log = structlog.get_logger("headrace.batch")
PAGE_MOST = 100
FILES_PAGE_MOST = 10000
WISH_BYTES = 65536
"""Longest body that creates a batch."""
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class BatchApi:
    """The endpoints. Concurrency: event loop of the batch process."""

    store: BatchStore
    desk: BatchDesk
    plan: BatchPlan
    clock: Clock

    def app(self) -> Starlette:
        """The ASGI application."""
        table: list[tuple[str, str, Endpoint]] = [
            ("/v1/files", "POST", self.create_file),
            ("/v1/files", "GET", self.list_files),
            ("/v1/files/{file_id}", "GET", self.show_file),
            ("/v1/files/{file_id}", "DELETE", self.delete_file),
            ("/v1/files/{file_id}/content", "GET", self.file_content),
            ("/v1/batches", "POST", self.create_batch),
            ("/v1/batches", "GET", self.list_batches),
            ("/v1/batches/{batch_id}", "GET", self.show_batch),
            ("/v1/batches/{batch_id}/cancel", "POST", self.cancel_batch),
        ]
        return Starlette(routes=[Route(path, _guarded(act), methods=[method]) for path, method, act in table])

    # --- files

    async def create_file(self, request: Request) -> Response:
        tenant, now_at = _submitter(request).tenant, self.clock.wall_s()
        file_id = make_file_id()
        form = Form(self.store.path_of(f".{file_id}"), self.plan.file_bytes)
        try:
            await receive_form(request.headers.get("content-type", ""), _pieces(request), form)
            file = make_file(form, file_id, tenant, now_at, self.plan.retention_days * DAY_S)
            self._check_room(tenant, file.bytes_)
            keep_form(form, self.store.path_of(file_id))
            self.store.add_file(file)
        finally:
            form.discard()
        return _json(show_file(file))

    async def list_files(self, request: Request) -> Response:
        asked = request.query_params
        limit = _limit(request, FILES_PAGE_MOST, FILES_PAGE_MOST)
        files = self.store.list_files(
            _submitter(request).tenant,
            purpose=asked.get("purpose"),
            after=asked.get("after"),
            limit=limit + 1,
            is_ascending=asked.get("order") == "asc",
        )
        return _page([show_file(file) for file in files], limit)

    async def show_file(self, request: Request) -> Response:
        return _json(show_file(self._file(request)))

    async def delete_file(self, request: Request) -> Response:
        file = self._file(request)
        for batch in self.store.list_open(file.tenant):
            if batch.input_file_id == file.file_id:
                message = f"batch {batch.batch_id} still reads this file; cancel it first"
                raise RequestError(ErrorCode.CONFLICT, message)
        self.store.delete_file(file.file_id)
        return _json({"id": file.file_id, "object": "file", "deleted": True})

    async def file_content(self, request: Request) -> Response:
        file = self._file(request)
        return FileResponse(self.store.path_of(file.file_id), media_type="application/octet-stream")

    def _file(self, request: Request) -> StoredFile:
        file_id = request.path_params["file_id"]
        file = self.store.find_file(_submitter(request).tenant, file_id)
        if file is None:
            raise RequestError(ErrorCode.OBJECT_NOT_FOUND, f"there is no file {file_id}")
        return file

    def _check_room(self, tenant: str, more_bytes: int) -> None:
        if self.store.stored_bytes(tenant) + more_bytes > self.plan.stored_bytes:
            message = (
                f"tenant {tenant!r} may store {self.plan.stored_bytes} bytes of files (batch.stored_bytes); "
                "delete some that are no longer needed"
            )
            raise RequestError(ErrorCode.QUOTA_EXHAUSTED, message, is_final=True)

    # --- batches

    async def create_batch(self, request: Request) -> Response:
        submitter = _submitter(request)
        wish = await _read_wish(request)
        file = self.store.find_file(submitter.tenant, wish.input_file_id)
        if file is None or file.purpose != "batch":
            message = f"there is no file {wish.input_file_id} of purpose batch"
            raise RequestError(ErrorCode.OBJECT_NOT_FOUND, message, param="input_file_id")
        if len(self.store.list_open(submitter.tenant)) >= self.plan.open_batches:
            message = f"tenant {submitter.tenant!r} has {self.plan.open_batches} open batches (batch.open_batches)"
            raise RequestError(ErrorCode.QUOTA_EXHAUSTED, message, is_final=True)
        self._check_room(submitter.tenant, 0)
        batch = make_batch(wish, submitter, self.clock.wall_s(), self.plan, f"batch_{secrets.token_hex(12)}")
        self.store.put_batch(batch)
        self.desk.wake()
        return _json(show_batch(batch))

    async def list_batches(self, request: Request) -> Response:
        limit = _limit(request, 20, PAGE_MOST)
        tenant = _submitter(request).tenant
        batches = self.store.list_batches(tenant, after=request.query_params.get("after"), limit=limit + 1)
        return _page([show_batch(self.desk.current(batch)) for batch in batches], limit)

    async def show_batch(self, request: Request) -> Response:
        return _json(show_batch(self.desk.current(self._batch(request))))

    async def cancel_batch(self, request: Request) -> Response:
        batch = self._batch(request)
        if not batch.is_open:
            message = f"batch {batch.batch_id} is {batch.status.value} already"
            raise RequestError(ErrorCode.CONFLICT, message)
        return _json(show_batch(self.desk.cancel(batch)))

    def _batch(self, request: Request) -> StoredBatch:
        batch_id = request.path_params["batch_id"]
        batch = self.store.find_batch(_submitter(request).tenant, batch_id)
        if batch is None:
            raise RequestError(ErrorCode.OBJECT_NOT_FOUND, f"there is no batch {batch_id}")
        return batch


def _guarded(act: Endpoint) -> Endpoint:
    """The boundary: every failure becomes an answer from the one table."""

    async def answer(request: Request) -> Response:
        try:
            return await act(request)
        except RequestError as error:
            return _refuse(error)
        except (OSError, sqlite3.Error) as error:
            log.exception("files cannot be read or written")
            return _refuse(RequestError(ErrorCode.STORE_UNAVAILABLE, f"files cannot be read or written now: {error}"))
        except Exception:
            error_id = secrets.token_hex(8)
            log.exception("internal bug", error_id=error_id)
            return _refuse(RequestError(ErrorCode.INTERNAL_BUG, f"headrace failed; report it with error id {error_id}"))

    return answer


def _refuse(error: RequestError) -> Response:
    headers = {"x-should-retry": "false"} if error.is_final else {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, ceil(error.retry_after_s)))
    return Response(error_body(error), error.spec.http_status, headers, "application/json")


def _submitter(request: Request) -> Submitter:
    given = request.headers.get(SUBMITTER_HEADER, "").encode("latin-1")
    return msgspec.json.decode(given, type=Submitter)


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    async for piece in request.stream():
        if piece:
            yield piece


async def _read_wish(request: Request) -> BatchWish:
    body = bytearray()
    async for piece in request.stream():
        body += piece if len(body) <= WISH_BYTES else b""
    if len(body) > WISH_BYTES:
        raise RequestError(ErrorCode.BODY_TOO_LARGE, f"the body is longer than {WISH_BYTES} bytes")
    try:
        return msgspec.json.decode(body, type=BatchWish)
    except UNDECODABLE as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the body is not a batch: {error}") from error


def _limit(request: Request, usual: int, most: int) -> int:
    given = request.query_params.get("limit", str(usual))
    if not given.isdigit() or not 1 <= int(given) <= most:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"limit must be a number of 1 to {most}", param="limit")
    return int(given)


def _page(items: list[dict[str, Any]], limit: int) -> Response:
    shown = items[:limit]
    return _json(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(items) > limit,
        }
    )


def _json(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
