"""The word that was meant."""

from headrace.declaration.nearest import SHOWN_WORDS, did_you_mean, find_nearest


def test_the_nearest_word_ignores_case_and_dashes() -> None:
    """max-Attempts means max_attempts."""
    assert find_nearest("max-Attempts", ["max_attempts", "backoff_s"]) == "max_attempts"
    assert find_nearest("zzz", ["max_attempts"]) is None


def test_without_a_near_word_the_list_is_given() -> None:
    """Long lists are cut."""
    assert did_you_mean("zzz", ["aa", "bb"]) == "There are: aa, bb."
    assert did_you_mean("zzz", []) == "None is declared."
    assert did_you_mean("zzz", [f"a{n}" for n in range(SHOWN_WORDS + 1)]).endswith(", and more.")
