"""`auto_models`: what its types refuse, in the operator's words."""

import re
import textwrap
from pathlib import Path

import pytest

from headrace.declaration.lint import Machine
from headrace.declaration.load import load_text
from headrace.declaration.problem import DeclarationError

BASE = """
version: 1
models:
  large: {}
  small: {}
pools:
  a: {model: large, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
  b: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:2"]}
prices:
  models: {large: {input_per_million: 2}, small: {input_per_million: 1}}
"""


def said(section: str, base: str = BASE) -> list[str]:
    """What `headrace check` says of a file with such a section."""
    machine = Machine(has_file=lambda _: True, threads=None)
    text = base + textwrap.dedent(section)
    try:
        problems = load_text(text, path=Path("h.yaml"), environ={}, is_elsewhere=False, machine=machine).warnings
    except DeclarationError as error:
        problems = error.problems
    assert all(problem.line > 0 for problem in problems)
    return [f"{problem.key}: {problem.message}" for problem in problems]


def test_a_name_for_two_models_is_sound() -> None:
    """The least that one writes is enough."""
    assert said("auto_models: {auto-chat: {models: {large: {quality: 0.9}, small: {quality: 0.4}}}}") == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("auto_models: {auto: {models: {}}}", r"auto_models\.auto\.models: needs at least one entry"),
        ("auto_models: {auto: {}}", r"auto_models\.auto\.models: is missing"),
        ("auto_models: {auto: {models: {large: {quality: 2}, small: {}}}}", r"quality: must be .*1"),
        ("auto_models: {auto: {models: {large: {}, small: {}}, prefer: cheap}}", r"prefer: must be one of balanced"),
        ("auto_models: {auto: {models: {large: {}, small: {}}, ttft_s: 2}}", r"ttft_s means nothing where balanced"),
        (
            "auto_models: {auto: {models: {large: {}, small: {}}, weights: {latency: 0, price: 0, quality: 0}}}",
            r"every weight is 0: nothing tells the models apart",
        ),
        ("auto_models: {auto: {models: {large: {}, smal: {}}}}", r"models\.smal: there is no such model"),
        ("auto_models: {large: {models: {large: {}, small: {}}}}", r"auto_models\.large: a model has this name"),
        (
            "auto_models: {one: {models: {large: {}, small: {}}}, two: {models: {one: {}, small: {}}}}",
            r"auto_models\.two\.models\.one: stands for several models itself",
        ),
        ("auto_models: {auto: {models: {large: {}}}}", r"there is one model to choose from"),
        (
            "auto_models: {auto: {models: {large: {}, small: {}}, prefer: best}}",
            r"all have the same quality: none is best",
        ),
        ("tenants: {t: {models: [auto]}}", r"tenants\.t\.models.*: there is no such model"),
        ("auto_models: [large, small]", r"auto_models: must be a mapping"),
    ],
)
def test_what_is_wrong_is_named(section: str, message: str) -> None:
    """Each mistake is said where it stands, in words that help."""
    found = said(section)
    assert any(re.search(message, each) for each in found), found


def test_a_model_without_a_price_among_priced_ones_is_doubted() -> None:
    """It would count as free, and be taken for the cheapest."""
    section = "auto_models: {auto: {models: {large: {}, other: {}}}}"
    assert any("no such model" in each for each in said(section))
    declared = BASE.replace("  small: {}\n", "  small: {}\n  other: {}\n")
    assert any("count as free: other" in each for each in said(section, declared))


def test_tenants_and_keys_may_be_given_the_name() -> None:
    """A tenant's models may name it as they name models."""
    section = """
    auto_models: {auto: {models: {large: {quality: 1}, small: {quality: 0}}}}
    tenants: {t: {models: [auto]}}
    """
    assert said(section) == []


@pytest.mark.parametrize(
    "section",
    [
        "auto_models: {a: {models: {zz: {}}}}",
        "auto_models: {a: {models: {a: {}}}}",
        "auto_models: {a: {models: {zz: {}, yy: {}}, prefer: best}}",
    ],
)
def test_a_model_that_does_not_exist_is_all_that_is_said(section: str) -> None:
    """What is only doubtful while the models are not found is not said beside the error."""
    assert {line.partition(": ")[2] for line in said(section)} <= {
        "there is no such model",
        "stands for several models itself",
    }
