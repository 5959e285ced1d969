import pytest
from pydantic import ValidationError

from headrace.declaration.model import Gateway
from headrace.declaration.sharing_plan import SharedThrough, compile_sharing
from headrace.declaration.sharing_section import Sharing


@pytest.mark.parametrize(
    ("gateway", "through"),
    [
        (Gateway(), SharedThrough.NOTHING),
        (Gateway(workers=2), SharedThrough.COORDINATOR),
        (Gateway(sharing=Sharing(redis="redis://host/0")), SharedThrough.REDIS),
        (Gateway(workers=2, sharing=Sharing(redis="rediss://host/0")), SharedThrough.REDIS),
    ],
)
def test_the_store_follows_from_what_is_declared(gateway: Gateway, through: SharedThrough) -> None:
    """Redis where it is declared, else the supervisor where there are several workers, else nothing."""
    assert compile_sharing(gateway).through is through


def test_the_url_is_never_shown() -> None:
    """A Redis URL may hold a password."""
    section = Sharing(redis="redis://:secret@host/0")
    assert "secret" not in section.model_dump_json() + repr(section)


def test_a_url_of_something_else_is_refused() -> None:
    """Only Redis' own schemes are taken."""
    with pytest.raises(ValidationError, match="must begin with"):
        Sharing(redis="http://host")
