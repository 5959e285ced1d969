"""Failures that an operator must read: what went wrong, which value, what to do. Shown without a traceback."""


class OperatorError(Exception):
    """The base of every expected failure of a command: the command line prints its text and exits with 1.

    `message` says who, what and which value; `hint` says what to do. Neither ever holds a secret or prompt text.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class WrongUsageError(OperatorError):
    """What was typed cannot be meant: the command exits with 2."""


class UnknownNameError(WrongUsageError):
    """There is nothing of that name: no such tenant, key, model, pool, replica or log."""
