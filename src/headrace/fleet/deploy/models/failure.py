"""The one error of model fetching, and the signal that stops a fetch from outside."""


class ModelFetchError(Exception):
    """A model file could not be had. The message says what was wanted, what happened and what to do."""


class FetchCancelledError(Exception):
    """The caller gave up; partial files stay for a later resume."""
