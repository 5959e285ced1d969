"""Forms that are refused before anything of them is kept."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.batch.uploads import BOUNDARY_BYTES, Form, receive_form
from headrace.domain.errors import ErrorCode, RequestError


def form_with(boundary: bytes) -> bytes:
    part = b'--%b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--%b--\r\n'
    return part % (boundary, boundary)


async def upload(folder: Path, boundary_bytes: int) -> Form:
    boundary = b"b" * boundary_bytes

    async def pieces() -> AsyncIterator[bytes]:
        yield form_with(boundary)

    form = Form(folder / "draft", most_bytes=100)
    try:
        await receive_form(f"multipart/form-data; boundary={boundary.decode()}", pieces(), form)
    finally:
        form.discard()
    return form


@pytest.mark.parametrize("boundary_bytes", [1, BOUNDARY_BYTES])
async def test_a_boundary_may_be_as_long_as_any_client_makes_it(tmp_path: Path, boundary_bytes: int) -> None:
    """Up to the bound the form is read whole."""
    assert (await upload(tmp_path, boundary_bytes)).size_bytes == 1


@pytest.mark.parametrize("boundary_bytes", [0, BOUNDARY_BYTES + 1, 5000])
async def test_a_boundary_of_no_length_or_too_long_is_the_callers_fault(tmp_path: Path, boundary_bytes: int) -> None:
    """It gets 400 with the reason, and is no bug of ours."""
    with pytest.raises(RequestError) as caught:
        await upload(tmp_path, boundary_bytes)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
