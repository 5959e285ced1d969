"""What a verb has made as a text: printed, or written to the file that `--output` names."""

from pathlib import Path

from headrace.cli.output import fail
from headrace.whole_file import write_whole


def give(text: str, output: Path | None) -> None:
    """Print it, or write it: a file that something else reads is there whole or as it was."""
    if output is None:
        print(text, end="")
        return
    check_folder(output)
    if output.exists() and not output.is_file():
        # A pipe or a device is written to, never replaced by a file.
        output.write_text(text, encoding="utf-8")
    else:
        write_whole(output.resolve(), text, mode=0o644)


def check_folder(output: Path) -> None:
    """End where there is no folder to write to."""
    folder = output.absolute().parent
    if not folder.is_dir():
        fail(f"the folder {folder} does not exist", hint="Make it first, or give another --output.")
