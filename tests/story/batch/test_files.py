"""Files as the official client stores, lists, reads and deletes them."""

from pathlib import Path

import httpx
import openai
import pytest
from tests.harness.running_batches import RunningBatches
from tests.harness.running_gateway import declare, new_key, remote_pool

NOWHERE = {"chat": remote_pool("http://127.0.0.1:9")}


async def test_a_file_is_stored_listed_read_and_deleted(tmp_path: Path) -> None:
    """What is uploaded comes back byte for byte, until it is deleted; long lists come in pages."""
    content = b'{"custom_id": "1"}\n' * 50_000
    async with RunningBatches(tmp_path, declare(NOWHERE)) as batches:
        client = batches.client()

        made = await client.files.create(file=("in.jsonl", content), purpose="batch")
        listed = await client.files.list(purpose="batch")
        read = await client.files.content(made.id)

        assert ("in.jsonl", "batch", len(content)) == (made.filename, made.purpose, made.bytes)
        assert [made.id] == [file.id for file in listed.data]
        assert content == read.content
        assert made == await client.files.retrieve(made.id)
        assert (await client.files.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.content(made.id)
        assert list((batches.folder / "files").iterdir()) == []

        several = [(await client.files.create(file=(f"{n}.jsonl", b"x"), purpose="batch")).id for n in range(5)]
        latest = [file.id async for file in client.files.list(limit=2)]
        earliest = [file.id async for file in client.files.list(limit=2, order="asc")]
        assert several[::-1] == latest
        assert several == earliest


async def test_files_of_other_tenants_are_not_found(tmp_path: Path) -> None:
    """Whoever guesses the id of another tenant's file or batch learns nothing, not even that it exists."""
    other_key, other = new_key("other")
    declaration = declare(NOWHERE, tenants={"default": {}, "other": {}})
    async with RunningBatches(tmp_path, declaration, (other,)) as batches:
        mine, theirs = batches.client(), batches.client(other_key)
        file = await mine.files.create(file=("in.jsonl", b"{}"), purpose="batch")
        batch = await mine.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )

        for attempt in (
            theirs.files.retrieve(file.id),
            theirs.files.content(file.id),
            theirs.files.delete(file.id),
            theirs.batches.retrieve(batch.id),
            theirs.batches.cancel(batch.id),
            theirs.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await attempt
            assert caught.value.code == "object_not_found"
        forged = {"x-headrace-submitter": '{"tenant":"default","key_id":"x","is_key":false}'}
        assert (await theirs.files.list(extra_headers=forged)).data == []
        with pytest.raises(openai.AuthenticationError):
            await batches.client("hr-nobody").files.list(extra_headers=forged)
        assert (await theirs.batches.list()).data == []


async def test_bounds_of_files_hold(tmp_path: Path) -> None:
    """A file may be as large as declared, and a tenant may store so much; what is refused leaves nothing behind."""
    other_key, other = new_key("other")
    bounds = {"file_bytes": 1024, "stored_bytes": 2048}
    declaration = declare(NOWHERE, tenants={"default": {}, "other": {}}, batch=bounds)
    async with RunningBatches(tmp_path, declaration, (other,)) as batches:
        client = batches.client()
        with pytest.raises(openai.APIStatusError) as caught:
            await client.files.create(file=("in.jsonl", b"x" * 1025), purpose="batch")
        assert (caught.value.status_code, caught.value.code) == (413, "body_too_large")
        assert list((batches.folder / "files").iterdir()) == []

        first = await client.files.create(file=("1", b"x" * 1024), purpose="batch")
        await client.files.create(file=("2", b"x" * 1000), purpose="batch")
        with pytest.raises(openai.RateLimitError) as caught:
            await client.files.create(file=("3", b"x" * 25), purpose="batch")
        assert caught.value.code == "quota_exhausted"
        assert caught.value.response.headers["x-should-retry"] == "false"
        await batches.client(other_key).files.create(file=("3", b"x" * 25), purpose="batch")
        await client.files.delete(first.id)
        await client.files.create(file=("3", b"x" * 25), purpose="batch")

        await _check_endless(batches)


async def _check_endless(batches: RunningBatches) -> None:
    """Refused at its head where it says its length, and after the limit where it does not."""

    async def endless():
        while True:
            yield b"x" * 65536

    headers = {"authorization": f"Bearer {batches.gateway.key}", "content-type": "multipart/form-data; boundary=b"}
    async with httpx.AsyncClient(base_url=batches.gateway.url, headers=headers) as client:
        try:
            assert (await client.post("/v1/files", content=endless())).status_code == 413
        except httpx.TransportError:
            pass  # cut off while it was still sending: it may not get to read why
        said = await client.post("/v1/files", content=b"x" * 200_000)
    assert said.status_code == 413
    assert (await batches.gateway.wait_idle()).in_flight == 0


async def test_forms_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """A missing file, another purpose, or a broken form is answered with what is wrong; 503 while nobody stores."""
    async with RunningBatches(tmp_path, declare(NOWHERE)) as batches:
        headers = {"authorization": f"Bearer {batches.gateway.key}"}
        async with httpx.AsyncClient(base_url=batches.gateway.url, headers=headers) as client:
            for sent, said in (
                ({"data": {"purpose": "fine-tune"}, "files": {"file": b"x"}}, "purpose"),
                ({"files": {"file": b"x"}}, "purpose"),
                ({"data": {"purpose": "batch"}, "files": {"other": b"x"}}, "no file"),
                ({"json": {"purpose": "batch"}}, "multipart/form-data"),
                ({"content": b"--b\r\nxx", "headers": {"content-type": "multipart/form-data; boundary=b"}}, "form"),
            ):
                answer = await client.post("/v1/files", **sent)
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
                assert said in answer.json()["error"]["message"]
        assert list((batches.folder / "files").iterdir()) == []

        await batches.stop()
        batches.gateway.settings.batch_socket.unlink()
        with pytest.raises(openai.InternalServerError) as caught:
            await batches.client().files.list()
        assert (caught.value.status_code, caught.value.code) == (503, "store_unavailable")
        assert (await batches.gateway.wait_idle()).in_flight == 0


async def test_switched_off_there_are_no_such_paths(tmp_path: Path) -> None:
    """An operator who wants no stored data switches files and batches off."""
    async with RunningBatches(tmp_path, declare(NOWHERE, batch={"enabled": False})) as batches:
        with pytest.raises(openai.NotFoundError) as caught:
            await batches.client().files.list()
        assert caught.value.code == "route_not_found"
