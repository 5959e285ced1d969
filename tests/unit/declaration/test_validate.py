"""Wrong keys and values: each problem says where, what it found and what is allowed."""

import pytest

from headrace.declaration.problem import Severity

GOOD = "version: 1\nmodels: {m: {source: 'file:.'}}\npools: {p: {model: m}}\n"


def test_an_unknown_key_gets_the_nearest_valid_one(problems) -> None:
    """A typo in a key names the key that was meant."""
    (problem,) = problems(GOOD + "gateway:\n  limits:\n    in_fligth: 5\n")
    assert (problem.line, problem.column, problem.key) == (6, 5, "gateway.limits.in_fligth")
    assert (problem.message, problem.hint) == ("there is no such key", 'Did you mean "in_flight"?')


def test_an_unknown_key_unlike_any_gets_the_list(problems) -> None:
    """A key that resembles none gets the allowed ones."""
    (problem,) = problems(GOOD + "gateway:\n  cors: {xyz: 1}\n")
    assert problem.hint == "There are: allow_origins, max_age_s."


@pytest.mark.parametrize(
    ("yaml", "key", "message", "value"),
    [
        ("gateway: {retry: {max_attempts: 99}}", "gateway.retry.max_attempts", "must be 1 to 10", '"99"'),
        ("gateway: {drain_s: -1}", "gateway.drain_s", "must be 0 to 3600", '"-1"'),
        ("gateway: {limits: {connections: many}}", "gateway.limits.connections", "must be a whole number", '"many"'),
        ("gateway: {limits: {connections: 1.5}}", "gateway.limits.connections", "must be a whole number", '"1.5"'),
        ("gateway: {limits: {connections: true}}", "gateway.limits.connections", "must be a number", '"true"'),
        ("gateway: {drain_s: soon}", "gateway.drain_s", "must be a number", '"soon"'),
        ("gateway: {listen: [a]}", "gateway.listen", "must be text", None),
        ("gateway: {listen: 7070}", "gateway.listen", "must be text", '"7070"'),
        (
            "observability: {request_log: maybe}",
            "observability.request_log",
            "must be true or false",
            '"maybe"',
        ),
        (
            "observability: {log_level: verbose}",
            "observability.log_level",
            "must be one of debug, info, warning, error",
            '"verbose"',
        ),
        (
            "gateway: {cors: {allow_origins: '*'}}",
            "gateway.cors.allow_origins",
            "must be a list, such as [a, b]",
            '"*"',
        ),
        (
            "gateway: {limits: 5}",
            "gateway.limits",
            "must be a section (key: value lines, indented)",
            '"5"',
        ),
        ("gateway: {drain_s: }", "gateway.drain_s", "has no value", None),
        ("tenants: ", "tenants", "has no value", None),
        ("tenants: {}", "tenants", "needs at least one entry", None),
    ],
)
def test_a_wrong_value_says_what_is_allowed(problems, yaml: str, key: str, message: str, value: str | None) -> None:
    """A value of the wrong kind or size names the key, the value and what may stand there."""
    (problem,) = problems(GOOD + yaml)
    assert (problem.key, problem.message, problem.value) == (key, message, value)


def test_a_wrong_word_gets_the_nearest_one(problems) -> None:
    """A typo in a closed list of words names the word that was meant."""
    found = problems(
        "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: vlm, endpoints: ['http://127.0.0.1:1']}}\n"
    )
    assert [problem.hint for problem in found] == ['Did you mean "vllm"?']


def test_missing_keys_point_to_their_section(problems) -> None:
    """A pool without a model is named at the pool."""
    (problem,) = problems("version: 1\nmodels: {m: {source: 'file:.'}}\npools:\n  p:\n    threads: 2\n")
    assert (problem.line, problem.key, problem.message) == (4, "pools.p.model", "is missing")


def test_a_bad_name_is_named(problems) -> None:
    """Names become labels and ids, so blanks are refused."""
    (problem,) = problems("version: 1\nmodels: {m: {source: 'file:.'}}\npools: {p: {model: m}}\ntenants: {a b: {}}\n")
    assert (problem.key, problem.message) == ("tenants.a b", "is not a valid name")


def test_sections_that_exclude_each_other(problems) -> None:
    """A pool is run here or elsewhere, not both."""
    (problem,) = problems(
        "version: 1\nmodels: {m: {}}\npools: {p: {model: m, replicas: 1, endpoints: ['http://127.0.0.1:1']}}\n"
    )
    assert problem.key == "pools.p"
    assert "not both" in problem.message


def test_one_typo_does_not_hide_other_problems(problems) -> None:
    """Problems of spelling and of meaning are found in one go, in the file's order."""
    found = problems(
        """
        version: 1
        models: {m: {source: 'file:.', sha: x}}
        pools:
          a: {model: mm, slotz: 2}
          b: {modle: m}
        tenants: {t: {models: [q]}}
        """
    )
    assert [(problem.line, problem.key) for problem in found if problem.severity is Severity.ERROR] == [
        (3, "models.m.sha"),
        (5, "pools.a.model"),
        (5, "pools.a.slotz"),
        (6, "pools.b.model"),
        (6, "pools.b.modle"),
        (7, "tenants.t.models[0]"),
    ]


def test_a_checksum_has_a_shape(problems) -> None:
    """A SHA-256 that is none is refused at once."""
    (problem,) = problems("version: 1\nmodels: {m: {source: 'file:.', sha256: ABC}}\npools: {p: {model: m}}\n")
    assert problem.message == "must be 64 hexadecimal digits in lower case"


def test_a_section_without_keys_has_the_defaults(load) -> None:
    """`team-a:` with nothing below it, or with everything commented out, is a section of defaults."""
    declaration = load(GOOD + "gateway:\n  limits:\n  tls:\ntenants:\n  team-a:\n").declaration
    assert list(declaration.tenants) == ["team-a"]
    assert declaration.gateway.limits.in_flight == 4096
    assert declaration.gateway.tls is None
