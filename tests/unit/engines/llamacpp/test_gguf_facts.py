"""Single facts from a GGUF header."""

from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.llamacpp.gguf_facts import has_pooling


def write(path: Path, pooling: gguf.PoolingType | None) -> Path:
    writer = gguf.GGUFWriter(path, arch="bert")
    writer.add_languages(["en", "de"])
    writer.add_array("bert.numbers", [1, 2, 3])
    writer.add_bool("bert.flag", True)
    writer.add_float32("bert.eps", 1e-5)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [(gguf.PoolingType.CLS, True), (gguf.PoolingType.MEAN, True), (gguf.PoolingType.NONE, False), (None, False)],
)
def test_an_embedding_model_keeps_its_own_pooling(tmp_path: Path, pooling: gguf.PoolingType | None, expected: bool):
    """Only a model that names no pooling is given one."""
    assert has_pooling(write(tmp_path / "m.gguf", pooling)) is expected


@given(content=st.binary(max_size=300))
def test_files_that_cannot_be_read_are_left_to_llama_cpp(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    """Damaged files never raise here: the engine reports them when it loads."""
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    path.write_bytes(content)
    assert has_pooling(path) is True


def test_a_missing_file_is_left_to_llama_cpp(tmp_path: Path):
    """As above."""
    assert has_pooling(tmp_path / "nothing") is True


@given(cut=st.integers(0, 200))
def test_a_truncated_header_is_survived(tmp_path_factory: pytest.TempPathFactory, cut: int):
    """A file cut off anywhere never raises."""
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf", gguf.PoolingType.NONE)
    path.write_bytes(path.read_bytes()[:cut])
    assert has_pooling(path) in (True, False)
