"""The one error of model fetching, and the signal that stops a fetch from outside."""


class ModelFetchError(Exception):
    """A model file could not be had. The message says what was wanted, what happened and what to do."""


class ChecksumMismatchError(ModelFetchError):
    """A whole file arrived, and it is another one: to fetch it again would most likely bring the same."""


class FetchCancelledError(Exception):
    """The caller gave up; partial files stay for a later resume."""
