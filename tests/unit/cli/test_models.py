"""`headrace models` and `headrace models list`."""

import json


def test_models_are_listed_with_and_without_the_word(run) -> None:
    """`list` works as it does for keys, tenants and engines, with the same options."""
    plain, listed = run("models", "--json"), run("models", "list", "--json")
    assert (plain.code, listed.code) == (0, 0), listed.err
    assert json.loads(plain.out) == json.loads(listed.out)
    assert json.loads(listed.out)["data"][0]["model"] == "smollm2-135m"
    assert "--fetch" in run("models", "list", "--help").out
