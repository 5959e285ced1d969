"""headrace version."""

import json

import headrace.gateway.pipeline as gateway_pipeline
from headrace import __version__


def test_it_names_headrace_and_its_parts(run) -> None:
    """What a bug report needs."""
    told = json.loads(run("version", "--json").out)
    assert told["data"]["headrace"] == __version__
    assert {"python", "uvloop", "xllamacpp"} <= set(told["data"])
    assert __version__ in run("version").out


def test_it_says_whether_the_hot_path_is_compiled(run) -> None:
    """Figures of two machines can be told apart: a gateway compiled to C is faster."""
    is_source = gateway_pipeline.__file__.endswith(".py")
    assert json.loads(run("version", "--json").out)["data"]["hot path"] == ("pure Python" if is_source else "compiled")
