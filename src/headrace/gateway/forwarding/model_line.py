"""`x-headrace-model`: tells a caller whose word stands for several models which of them answers."""

NAME = b"x-headrace-model: "
"""Begins the line, in the reply to a request for a name of `auto_models` alone."""


def naming_model(lines: bytes, model: str) -> bytes:
    """Return header lines with that of the model in them, whatever they named before."""
    before = lines.find(NAME)
    if before >= 0:
        lines = lines[:before] + lines[lines.index(b"\r\n", before) + 2 :]
    return b"%b%b%b\r\n" % (lines, NAME, model.encode("ascii", "backslashreplace"))
