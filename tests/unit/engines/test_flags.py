"""Launch arguments as data: what is declared, and what every table must hold."""

import pytest
from tests.harness.launch_specs import make_spec

from headrace.declaration.engine_options import EngineOptions
from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import Driver
from headrace.engines.flags import check_extra_args, count, iter_declared, switch, value
from headrace.engines.registry import driver_for

STARTED = [kind for kind in EngineKind if kind is not EngineKind.OPENAI]


@pytest.fixture(params=STARTED)
def driver(request: pytest.FixtureRequest) -> Driver:
    return driver_for(request.param)


def test_defaults_are_not_declared():
    """A pool that says nothing asks nothing of its engine."""
    assert list(iter_declared(EngineOptions())) == []


def test_what_is_declared_is_named_by_its_dotted_key():
    """Sections that are absent by default count with their required keys."""
    options = EngineOptions.model_validate(
        {"parallel": {"tensor": 2, "data": 1}, "quantization": "fp8", "speculative": {"method": "ngram"}}
    )
    assert list(iter_declared(options)) == ["parallel.tensor", "quantization", "speculative.method"]


def test_rows_say_nothing_where_nothing_is_declared():
    """One device, no value and an unknown state put no word on the command line."""
    spec = make_spec()
    assert count("parallel.tensor", "--tp", lambda spec: 1).words(spec) == ()
    assert value("x", "--x", lambda spec: None).words(spec) == ()
    assert switch("x", lambda spec: None, "--x", "--no-x").words(spec) == ()
    assert switch("x", lambda spec: True, None, "--no-x").words(spec) == ()
    assert switch("x", lambda spec: False, None, "--no-x").words(spec) == ("--no-x",)


def test_every_flag_says_what_it_comes_from(driver: Driver):
    """`engine verify` names the declared key behind a flag, and where the flag was read."""
    for emitted in driver.emitted_flags:
        assert emitted.flag.startswith("--")
        assert emitted.option == "headrace" or emitted.option.startswith(("pools.<name>.", "models.<name>."))
        assert emitted.source


def test_every_option_is_known(driver: Driver):
    """An engine has no option that cannot be declared."""
    dotted = {option for option in driver.options if "." in option and not option.startswith("models.")}
    for option in dotted:
        section, key = option.split(".")
        field = EngineOptions.model_fields[section]
        names = {
            name for part in (field.annotation, *getattr(field.annotation, "__args__", ())) for name in fields(part)
        }
        assert key in names, option


def fields(part: object) -> set[str]:
    return set(getattr(part, "model_fields", {}))


def test_values_of_extra_arguments_are_not_taken_for_flags():
    """Only words that begin like flags are looked at."""
    spec = make_spec({"extra_args": ["--other", "tp"]})
    assert list(check_extra_args(spec, [count("parallel.tensor", "--tp", lambda spec: 1)], {})) == []
