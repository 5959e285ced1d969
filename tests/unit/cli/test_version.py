"""headrace version."""

import json

from headrace import __version__


def test_it_names_headrace_and_its_parts(run) -> None:
    """What a bug report needs."""
    told = json.loads(run("version", "--json").out)
    assert told["data"]["headrace"] == __version__
    assert {"python", "uvloop", "xllamacpp"} <= set(told["data"])
    assert __version__ in run("version").out
