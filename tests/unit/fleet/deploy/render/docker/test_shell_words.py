"""Shell text that a shell reads as what it was made from."""

import subprocess
from pathlib import PurePosixPath

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.fleet.deploy.render.docker.shell_words import broken_at_flags, command, here_document

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)


@settings(max_examples=20, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5))
def test_a_shell_reads_every_word_as_it_was(words: list[str]) -> None:
    """Whatever a word holds, the shell hands it on unchanged."""
    line = command([["printf", "%s\\0"], *broken_at_flags(words)])
    said = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    assert said.decode() == "".join(f"{word}\0" for word in words)


def test_a_file_may_hold_the_mark_that_ends_it() -> None:
    """A text with the end mark in it is written whole, with another mark."""
    lines = here_document("folder", PurePosixPath("a/b.yaml"), "x\nHEADRACE_END\ny")
    assert lines == [
        'mkdir -p "$folder"/a',
        "cat > \"$folder\"/a/b.yaml <<'HEADRACE_END_'",
        *("x", "HEADRACE_END", "y", "HEADRACE_END_"),
    ]
