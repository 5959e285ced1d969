"""The one error of this package: what went wrong, in words for the person who ran the benchmark."""


class BenchmarkError(Exception):
    """The run cannot go on; the message says what to do."""
