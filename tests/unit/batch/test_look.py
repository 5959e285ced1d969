"""What operators see of files and batches while the batch process works on them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.batch.look import BatchStoreUnreadableError, read_batches, read_files
from headrace.batch.objects import BatchStatus, Counts, StoredBatch, StoredFile
from headrace.batch.store import BatchStore
from headrace.domain.batch import Submitter


def batch(number: int, tenant: str, status: BatchStatus) -> StoredBatch:
    return StoredBatch(
        batch_id=f"batch_{number}",
        submitter=msgspec.convert({"tenant": tenant, "key_id": "k"}, Submitter),
        endpoint="/v1/chat/completions",
        input_file_id=f"file-{number}",
        completion_window="24h",
        created_at=float(number),
        expires_at=number + 86400.0,
        output_file_id=f"file-out{number}",
        error_file_id=f"file-err{number}",
        status=status,
        counts=Counts(total=7, completed=2, failed=1),
    )


def fill(folder: Path) -> BatchStore:
    """Three batches of two tenants, and a file."""
    store = BatchStore(folder)
    store.put_batch(batch(1, "a", BatchStatus.COMPLETED))
    store.put_batch(batch(2, "b", BatchStatus.IN_PROGRESS))
    store.put_batch(batch(3, "a", BatchStatus.VALIDATING))
    store.add_file(
        StoredFile(
            file_id="file-1",
            tenant="a",
            filename="salaries.jsonl",
            purpose="batch",
            bytes_=123,
            created_at=1.0,
            expires_at=2.0,
        )
    )
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose batch process lives."""
    store = fill(tmp_path)
    yield tmp_path
    store.close()


def test_batches_are_seen_beside_the_process_that_runs_them(folder: Path) -> None:
    """The latest first; of one tenant, or only those that are not over."""
    assert [one.batch_id for one in read_batches(folder)] == ["batch_3", "batch_2", "batch_1"]
    assert [one.batch_id for one in read_batches(folder, is_open=True)] == ["batch_3", "batch_2"]
    assert [one.batch_id for one in read_batches(folder, tenant="a", is_open=True)] == ["batch_3"]
    [newest] = read_batches(folder, limit=1)
    assert (newest.tenant, newest.status, newest.lines, newest.completed, newest.failed) == ("a", "validating", 7, 2, 1)


def test_a_files_name_and_content_are_not_shown(folder: Path) -> None:
    """Its size, owner and age are."""
    [found] = read_files(folder, tenant="a")
    assert (found.file_id, found.bytes, found.tenant) == ("file-1", 123, "a")
    assert "salaries" not in repr(found)
    assert read_files(folder, tenant="b") == ()


def test_an_instance_without_batches_has_none(tmp_path: Path) -> None:
    """Nothing is made by looking."""
    assert read_batches(tmp_path / "none") == ()
    assert not (tmp_path / "none").exists()


def test_a_broken_store_is_said(tmp_path: Path) -> None:
    """Not taken for an empty one."""
    (tmp_path / "store.db").write_bytes(b"this is no database " * 100)
    with pytest.raises(BatchStoreUnreadableError, match="cannot be read"):
        read_batches(tmp_path)
