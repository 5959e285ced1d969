"""Converting a GGUF file to a faster quantisation."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize

from headrace.fleet.deploy.models import ModelFetchError, ModelStore
from headrace.fleet.deploy.models.requantize import CONVERTER_VERSION

SHAPE = (96, 64)


def write_model(path: Path, *, layers: int = 1) -> dict[str, np.ndarray]:
    """A tiny GGUF with slow (Q4_1), fast (Q8_0) and plain (F32) tensors, text and arrays; returns the slow ones."""
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, arch="llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_context_length(128)
    writer.add_token_list(["<s>", "naïve", "世界"])
    writer.add_token_types([3, 1, 1])
    writer.add_chat_template("{{ messages }}")
    slow = {}
    for layer in range(layers):
        values = random.standard_normal(SHAPE, dtype=np.float32)
        slow[f"blk.{layer}.ffn_up.weight"] = values
        writer.add_tensor(
            f"blk.{layer}.ffn_up.weight",
            quantize(values, gguf.GGMLQuantizationType.Q4_1),
            raw_dtype=gguf.GGMLQuantizationType.Q4_1,
        )
    fast = quantize(random.standard_normal(SHAPE, dtype=np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("token_embd.weight", fast, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.arange(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return slow


@pytest.mark.parametrize(("target", "kind", "error"), [("q8_0", "Q8_0", 0.02), ("q4_0", "Q4_0", 0.2)])
async def test_slow_matrices_are_converted_and_the_rest_is_kept(
    store: ModelStore, tmp_path: Path, target: str, kind: str, error: float
):
    """Values survive within the target's precision; vocabulary, template, norms and fast matrices are untouched."""
    model = tmp_path / "model.gguf"
    slow = write_model(model)
    path = await store.ensure(f"file:{model}", requantize=target)
    before = {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}
    reader = gguf.GGUFReader(path)
    after = {tensor.name: tensor for tensor in reader.tensors}
    assert [tensor.tensor_type.name for tensor in after.values()] == [kind, "Q8_0", "F32"]
    for name, values in slow.items():
        stored = dequantize(before[name].data, before[name].tensor_type)
        converted = dequantize(after[name].data, after[name].tensor_type)
        assert converted.shape == SHAPE
        assert np.abs(converted - stored).mean() < error * np.abs(values).mean()
    assert np.array_equal(after["token_embd.weight"].data, before["token_embd.weight"].data)
    assert np.array_equal(after["output_norm.weight"].data, np.arange(64, dtype=np.float32))
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["tokenizer.ggml.tokens"] == ["<s>", "naïve", "世界"]
    assert fields["tokenizer.chat_template"] == "{{ messages }}"
    assert fields["general.architecture"] == "llama"
    assert fields["general.file_type"] == int(gguf.LlamaFileType[f"MOSTLY_{kind}"])


async def test_a_conversion_is_done_once_and_remembered_by_its_checksum(store: ModelStore, tmp_path: Path):
    """The record names source, target, converter and result; the result is a blob like any other."""
    model = tmp_path / "model.gguf"
    write_model(model)
    path = await store.ensure(f"file:{model}", requantize="q8_0")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.name == sha256
    origin = hashlib.sha256(model.read_bytes()).hexdigest()
    record = tmp_path / "cache" / "records" / f"{origin}-q8_0-v{CONVERTER_VERSION}.json"
    assert json.loads(record.read_text()) == {
        "source_sha256": origin,
        "target": "q8_0",
        "converter_version": CONVERTER_VERSION,
        "sha256": sha256,
    }
    written_ns = path.stat().st_mtime_ns
    assert await store.ensure(f"file:{model}", requantize="q8_0") == path
    assert path.stat().st_mtime_ns == written_ns


async def test_a_lost_result_is_made_again(store: ModelStore, tmp_path: Path):
    """Deleting blobs, or damaging a record, costs a conversion and nothing else."""
    model = tmp_path / "model.gguf"
    write_model(model)
    path = await store.ensure(f"file:{model}", requantize="q8_0")
    path.unlink()
    assert (await store.ensure(f"file:{model}", requantize="q8_0")).exists()
    for record in (tmp_path / "cache" / "records").iterdir():
        record.write_bytes(b"{damaged")
    assert (await store.ensure(f"file:{model}", requantize="q8_0")) == path


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all, but long enough to look at" * 10])
async def test_a_file_that_is_not_gguf_is_named(store: ModelStore, tmp_path: Path, content: bytes):
    """What cannot be converted says so and leaves nothing."""
    model = tmp_path / "model.bin"
    model.write_bytes(content)
    with pytest.raises(ModelFetchError, match=r"model\.bin is not a GGUF file"):
        await store.ensure(f"file:{model}", requantize="q8_0")
    assert list((tmp_path / "cache" / "partial").iterdir()) == []


def test_a_killed_conversion_leaves_no_result_and_the_next_one_succeeds(tmp_path: Path):
    """kill -9 in the middle of a conversion never leaves half a model where a whole one is looked for."""
    model, cache = tmp_path / "model.gguf", tmp_path / "cache"
    write_model(model, layers=400)
    code = (
        "import sys; from pathlib import Path; from headrace.fleet.deploy.models import ModelStore;"
        "ModelStore(Path(sys.argv[1]), environ={}).ensure_now(sys.argv[2], None, 'q8_0')"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(cache), f"file:{model}"])
    deadline_mono_s = time.monotonic() + 60
    partial = cache / "partial"
    while process.poll() is None and time.monotonic() < deadline_mono_s:
        if partial.exists() and any(partial.iterdir()):
            break
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    blobs = cache / "blobs" / "sha256"
    assert not blobs.exists() or all(
        hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name for blob in blobs.iterdir()
    )
    path = ModelStore(cache, environ={}).ensure_now(f"file:{model}", None, "q8_0")
    assert len(gguf.GGUFReader(path).tensors) == 402
    assert list(partial.iterdir()) == []
