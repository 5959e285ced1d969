"""Changes that cannot be made as things stand: what the control API answers with 409."""

from headrace.declaration.load import BUILTIN_NAME
from headrace.domain.operator_error import OperatorError


class ConflictError(OperatorError):
    """The change contradicts what is there; repeating it as it is does not help."""


class ChangedMeanwhileError(ConflictError):
    """Somebody else was faster."""

    def __init__(self, what: str, expected_version: int, version: int) -> None:
        super().__init__(
            f"{what} was changed in between: it is at version {version}, your change was made from {expected_version}",
            hint="Look at it again, and repeat the change.",
        )


class ManagedByFileError(ConflictError):
    """The declaration's file owns the entry: it is changed there."""

    def __init__(self, what: str, place: str, line: int) -> None:
        if place == BUILTIN_NAME:
            super().__init__(
                f"{what} belongs to the built-in declaration, which no file holds",
                hint="`headrace init` writes headrace.yaml (init --endpoint URL in front of an engine that runs "
                "already); `headrace down` and `headrace up` then run on it. Suspend and resume work without one.",
            )
        else:
            super().__init__(
                f"{what} is managed by the file: edit {place}, then `headrace reload`",
                hint="Only suspend and resume work on entries of the file.",
            )
        self.place = place
        """`headrace.yaml:12`, or what there is in place of a file."""
        self.line = line
        """0 where there is no file."""
