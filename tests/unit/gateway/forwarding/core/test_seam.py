"""The seam between what a caller has and what another engine says."""

import pytest

from headrace.gateway.forwarding.core.seam import Seam


def joined(seam: Seam, *pieces: str) -> str:
    return "".join(seam.take(piece, is_last=number == len(pieces)) for number, piece in enumerate(pieces, 1))


def test_new_text_passes_as_it_comes() -> None:
    """With nothing expected and no stop text begun there is nothing to do."""
    seam = Seam("The capital", stops=("Paris",))
    assert seam.is_passed
    assert joined(seam, " of", " France") == " of France"


@pytest.mark.parametrize("pieces", [["\n\nNext"], ["\n", "\nNext"], ["\n", "\n", "Next"]])
def test_white_space_that_is_said_again_goes_out_once(pieces: list[str]) -> None:
    """However it is cut into pieces."""
    assert joined(Seam("Once.\n\n", expected="\n\n"), *pieces) == "Next"


def test_what_was_expected_and_does_not_come_is_not_missed() -> None:
    """An engine that says something else is passed on from where it differs."""
    assert joined(Seam("Once. ", expected=" "), "\nNext") == "\nNext"
    assert joined(Seam("Once.\n\n", expected="\n\n"), "\nNext") == "Next"


@pytest.mark.parametrize("had", ["", "a", "ab", "abc"])
def test_a_stop_text_across_the_seam_ends_the_answer(had: str) -> None:
    """Wherever the break lies within the stop text, nothing after it goes out; one wholly new is the engine's."""
    rest = "abcd"[len(had) :]
    seam = Seam("Once " + had, stops=("abcd",))
    said = joined(seam, *rest, " and on")
    assert seam.is_stopped is bool(had)
    assert said == ("" if had else "abcd and on")


def test_a_stop_text_that_does_not_come_after_all_is_given_out() -> None:
    """Held back while it might come; at the end of the answer nothing is kept back."""
    seam = Seam("x ab", stops=("abcd", "bcz"))
    assert seam.take("c") == ""
    assert seam.take("y") == "cy"
    assert seam.is_passed
    assert joined(Seam("x ab", stops=("abcd",)), "c") == "c"
