"""One upload: a multipart form whose file goes to disk a piece at a time, and becomes a stored file once it is whole.

An upload that is refused is read to its end all the same: the gateway bounds it, and its caller can read why.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from headrace.batch.objects import StoredFile
from headrace.domain.errors import ErrorCode, RequestError
from headrace.whole_file import sync_folder

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks  # there for type checkers only

FIELD_BYTES = 4096
"""Longest text field of the form, and longest header of a part."""
BOUNDARY_BYTES = 256
"""Of the form; the parser takes no more, and RFC 2046 allows 70."""
PARTS = 32
"""Most parts of one form."""
NAME_CHARACTERS = 255


@dataclass(slots=True, eq=False)
class Form:
    """What has come of a form so far. `draft`: where the content of its file goes."""

    draft: Path
    most_bytes: int
    fields: dict[str, bytes] = field(default_factory=dict[str, bytes])
    filename: str | None = None
    size_bytes: int = 0
    is_whole: bool = False
    _stream: BinaryIO | None = None
    _parts: int = 0
    _header: bytearray = field(default_factory=bytearray)
    _value: bytearray = field(default_factory=bytearray)
    _name: str = ""
    _is_file: bool = False

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._part_begins,
            "on_header_field": self._name_of_header,
            "on_header_value": self._value_of_header,
            "on_header_end": self._header_ends,
            "on_part_data": self._part_continues,
            "on_part_end": self._part_ends,
            "on_end": self._form_ends,
        }

    def close(self) -> None:
        """Make what is written durable."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            with stream:
                stream.flush()
                os.fsync(stream.fileno())

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        with suppress(FileNotFoundError):
            self.draft.unlink()

    def text(self, name: str) -> str | None:
        """A field's value."""
        value = self.fields.get(name)
        return None if value is None else value.decode("utf-8", "replace")

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > PARTS:
            raise _invalid(f"the form has more than {PARTS} parts")
        self._name, self._is_file = "", False
        self._header.clear()
        self._value.clear()

    def _name_of_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _value_of_header(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        if bytes(self._header).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._value))
            self._name = options.get(b"name", b"").decode("utf-8", "replace")
            if self._name == "file":
                self._begin_file(options.get(b"filename", b"upload.jsonl").decode("utf-8", "replace"))
        self._header.clear()
        self._value.clear()

    def _begin_file(self, filename: str) -> None:
        if self.filename is not None:
            raise _invalid("the form has more than one file")
        self._is_file = True
        self.filename = filename.rpartition("/")[2][:NAME_CHARACTERS] or "upload.jsonl"
        self._stream = open(self.draft, "xb", opener=_open_private)  # noqa: SIM115 (closed by `close` or `discard`)

    def _part_continues(self, data: bytes, start: int, end: int) -> None:
        if self._is_file and self._stream is not None:
            self.size_bytes += end - start
            if self.size_bytes > self.most_bytes:
                message = f"the file is larger than {self.most_bytes} bytes (batch.file_bytes)"
                raise RequestError(ErrorCode.BODY_TOO_LARGE, message)
            self._stream.write(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > FIELD_BYTES:
            raise _invalid(f"field {self._name!r} is longer than {FIELD_BYTES} bytes")

    def _part_ends(self) -> None:
        if not self._is_file:
            self.fields[self._name] = bytes(self._value)
        self._value.clear()

    def _form_ends(self) -> None:
        self.is_whole = True


async def receive_form(content_type: str, pieces: AsyncIterable[bytes], form: Form) -> None:
    """Read the whole form; its file is on the disk then, under its draft's name. Raises: RequestError, OSError."""
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    refusal: Exception | None = None
    if boundary is not None and len(boundary) > BOUNDARY_BYTES:
        refusal, boundary = _invalid(f"the form's boundary is longer than {BOUNDARY_BYTES} bytes"), None
    elif kind != b"multipart/form-data" or not boundary:
        refusal = _invalid("a file is sent as multipart/form-data, with the fields purpose and file")
    parser = MultipartParser(boundary or b"x", form.callbacks(), max_header_size=FIELD_BYTES)
    async for piece in pieces:
        if refusal is not None:
            continue  # read to its end
        try:
            parser.write(piece)
        except FormParserError as error:
            refusal = _invalid(f"the form cannot be read: {error}")
        except (RequestError, OSError) as error:
            refusal = error
    if refusal is not None:
        raise refusal
    if not form.is_whole:
        raise _invalid("the form is not complete: its last boundary is missing")
    await asyncio.to_thread(form.close)


def keep_form(form: Form, path: Path) -> None:
    """Give the file its own name, for good."""
    form.draft.replace(path)
    sync_folder(path.parent)


def make_file(form: Form, file_id: str, tenant: str, now_at: float, retention_s: float) -> StoredFile:
    """The file that a complete form is. Raises: RequestError where it is none for us."""
    purpose = form.text("purpose")
    if purpose != "batch":
        raise _invalid(f"purpose must be batch, not {purpose!r}", "purpose")
    if form.filename is None:
        raise _invalid("the form has no file", "file")
    return StoredFile(
        file_id=file_id,
        tenant=tenant,
        filename=form.filename,
        purpose=purpose,
        bytes_=form.size_bytes,
        created_at=now_at,
        expires_at=now_at + min(retention_s, _read_expiry(form, retention_s)),
    )


def make_file_id() -> str:
    return f"file-{secrets.token_hex(12)}"


def _read_expiry(form: Form, retention_s: float) -> float:
    seconds = form.text("expires_after[seconds]")
    if seconds is None:
        return retention_s
    if form.text("expires_after[anchor]") != "created_at" or not seconds.isdigit() or int(seconds) < 3600:
        message = "expires_after needs the anchor created_at, and at least 3600 seconds"
        raise _invalid(message, "expires_after")
    return float(seconds)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _invalid(message: str, param: str | None = None) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param=param)
