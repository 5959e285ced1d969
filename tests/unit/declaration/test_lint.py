"""What is wrong or doubtful although every type is right."""

from pathlib import Path

import pytest

from headrace.declaration.problem import Severity

OWN = "version: 1\nmodels: {m: {source: 'file:.'}}\npools: {p: {model: m%s}}\n"
REMOTE = "version: 1\nmodels: {m: {}}\npools: {p: {model: m, engine: vllm, endpoints: [%s]%s}}\n"
SHA = "0" * 64


def summary(found) -> list[tuple[str, str, str]]:
    return [(problem.severity.value, problem.key, problem.message) for problem in found]


def test_a_sound_declaration_has_no_problem(problems) -> None:
    """Nothing is said where nothing is wrong."""
    assert problems(OWN % "") == ()
    assert problems(REMOTE % ("'https://a.example.com:8443/prefix', 'http://[::1]:8000'", "")) == ()


def test_names_that_lead_nowhere(problems) -> None:
    """A pool or tenant that names a model not declared gets the nearest one."""
    found = problems(OWN % "" + "tenants: {t: {models: ['*', mm, other]}}\n")
    assert summary(found) == [
        ("error", "tenants.t.models[1]", "there is no such model"),
        ("error", "tenants.t.models[2]", "there is no such model"),
    ]
    assert [problem.hint for problem in found] == ['Did you mean "m"?', "There are: m."]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://h", "is not an http:// or https:// URL"),
        ("engine:8000", "is not an http:// or https:// URL"),
        ("http://", "has no valid host"),
        ("http://h:0", "has port 0"),
        ("http://h:99999", "is not a valid URL"),
        ("http://user:canary@h", "has a login in it; use the pool's credentials instead"),
        ("http://h/?a=b", "has a query or a fragment, which no endpoint has"),
        ("http://h#x", "has a query or a fragment, which no endpoint has"),
        ("http://h/v1", "ends in /v1, which headrace adds itself"),
        ("http://a b", "has blanks or control characters in it"),
    ],
)
def test_endpoint_urls(problems, url: str, message: str) -> None:
    """An endpoint that cannot be one is refused, and a password in it is not repeated."""
    found = problems(REMOTE % (f"'{url}'", ""))
    assert summary(found) == [("error", "pools.p.endpoints[0]", message)]
    assert "canary" not in str(found[0])


def test_an_endpoint_counts_once(problems) -> None:
    """The same URL twice in a pool is a mistake, with or without a slash at its end."""
    found = problems(REMOTE % ("'http://a', 'http://b', 'http://a/'", ""))
    assert [problem.key for problem in found] == ["pools.p.endpoints[0]", "pools.p.endpoints[2]"]


@pytest.mark.parametrize(
    ("gateway", "expected"),
    [
        ("{listen: here}", [("error", "gateway.listen", "is not HOST:PORT")]),
        ("{listen: '127.0.0.1:65536'}", [("error", "gateway.listen", "has no valid port (0 to 65535)")]),
        ("{control: '[::1:7071'}", [("error", "gateway.control", "has no valid host")]),
        (
            "{listen: '127.0.0.1:7070', control: '127.0.0.1:7070'}",
            [("error", "gateway.control", "is the same address as gateway.listen")],
        ),
        ("{listen: '127.0.0.1:0', control: '127.0.0.1:0'}", []),
        ("{listen: '[::1]:7070'}", []),
        (
            "{listen: '0.0.0.0:7070'}",
            [("warning", "gateway.listen", "callers beyond this machine send keys and prompts unencrypted")],
        ),
        (
            "{control: '0.0.0.0:7071'}",
            [("warning", "gateway.control", "operators beyond this machine reach it unencrypted")],
        ),
        (
            "{tls: {certificate: a.pem, key: b.pem}}",
            [
                ("error", "gateway.tls.certificate", "there is no such file on this machine"),
                ("error", "gateway.tls.key", "there is no such file on this machine"),
            ],
        ),
        ("{cors: {allow_origins: [https://a.example.com, '*']}}", []),
        ("{cors: {allow_origins: [a.example.com]}}", [("error", "gateway.cors.allow_origins[0]", "is not an origin")]),
        (
            "{fields: {media_hosts: ['https://a']}}",
            [("error", "gateway.fields.media_hosts[0]", "is not a host name")],
        ),
    ],
)
def test_gateway(problems, gateway: str, expected: list[tuple[str, str, str]]) -> None:
    """Addresses, certificates, origins and hosts are judged before anything listens."""
    assert summary(problems(OWN % "" + f"gateway: {gateway}\n")) == expected


def test_files_missing_here_are_warnings_elsewhere(problems) -> None:
    """A declaration for another machine may name that machine's files."""
    found = problems(OWN % "" + "gateway: {tls: {certificate: a.pem, key: b.pem}}\n", is_elsewhere=True)
    assert [problem.severity for problem in found] == [Severity.WARNING] * 2


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("{}", [("error", "models.m.source", "is needed, since headrace runs the pool p")]),
        ("{source: 'pypi:a==1#b.gguf'}", [("error", "models.m.sha256", "is needed for a pypi: source")]),
        (f"{{source: 'pypi:a==1#b.gguf', sha256: '{SHA}'}}", []),
        (f"{{source: 'hf:a/b@{'0' * 40}'}}", []),
        ("{source: 'hf:a/b@main'}", [("warning", "models.m.source", "the revision is a name that can move")]),
        (
            f"{{source: 'hf:a/b@{'0' * 40}#c.gguf'}}",
            [("error", "models.m.sha256", "is needed for a hf: source with a #file")],
        ),
        ("{source: 'file:nowhere.gguf'}", [("error", "models.m.source", "there is no such file on this machine")]),
    ],
)
def test_sources(problems, model: str, expected: list[tuple[str, str, str]]) -> None:
    """Weights must be named exactly, and pinned by checksum where they come from outside."""
    assert summary(problems(f"version: 1\nmodels: {{m: {model}}}\npools: {{p: {{model: m}}}}\n")) == expected


def test_a_source_of_no_known_form(problems) -> None:
    """A source that is not understood gets the accepted forms."""
    (problem,) = problems("version: 1\nmodels: {m: {source: 's3://x'}}\npools: {p: {model: m}}\n")
    assert "pypi:PACKAGE==VERSION#path/in/wheel" in problem.message


def test_settings_without_effect(problems) -> None:
    """What a pool's kind ignores is said, rather than silently ignored."""
    assert summary(problems(OWN % ", discover: dns, credentials: {headers: {a: b}}")) == [
        ("warning", "pools.p.discover", "has no effect: headrace runs this pool itself"),
        ("warning", "pools.p.credentials", "has no effect: headrace runs this pool itself"),
    ]
    more = ", batching: {max_sequences: 2}, prefix_cache: {tenant_isolation: true}, threads: 1, tls: {server_name: x}"
    found = problems(REMOTE % ("'http://127.0.0.1:8000'", more))
    assert summary(found) == [
        ("warning", "pools.p.batching", "has no effect: the engines of this pool run elsewhere"),
        ("warning", "pools.p.threads", "has no effect: the engines of this pool run elsewhere"),
        ("warning", "pools.p.tls", "has no effect: no endpoint is https"),
    ]


def test_credentials_on_an_open_wire(problems) -> None:
    """Credentials to another machine over plain HTTP are worth a warning; to this machine they are not."""
    credentials = ", credentials: {bearer: '${env:T}'}"
    assert summary(problems(REMOTE % ("'http://10.0.0.1'", credentials), T="x")) == [
        ("warning", "pools.p.endpoints[0]", "the credentials travel unencrypted")
    ]
    assert problems(REMOTE % ("'http://127.0.0.1', 'https://10.0.0.1'", credentials), T="x") == ()


def test_more_threads_than_the_machine_has(problems) -> None:
    """Threads of all replicas together stay within the machine's (here 4)."""
    assert problems(OWN % ", replicas: 2, threads: 2") == ()
    (problem,) = problems(OWN % ", replicas: 2, threads: 3")
    assert problem.message == "all replicas together ask for 6 threads, this machine has 4"
    assert problem.severity is Severity.WARNING


def test_doubtful_tenants_and_models(problems) -> None:
    """A tenant that can do nothing and a model that nobody serves are pointed out."""
    text = "version: 1\nmodels: {m: {source: 'file:.'}, idle: {}}\npools: {p: {model: m}}\n"
    text += "tenants: {a: {models: []}, b: {limits: {requests_per_min: 0}}}\n"
    assert summary(problems(text)) == [
        ("warning", "models.idle", "no pool serves this model"),
        ("warning", "tenants.a.models", "the tenant may use no model"),
        ("warning", "tenants.b.limits.requests_per_min", "0 refuses every request of this tenant"),
    ]


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        ("{database: 'sqlite:////var/lib/x.db'}", []),
        ("{database: 'postgresql+psycopg://h/d'}", []),
        (
            "{database: 'mysql://h/d'}",
            [("error", "ledger.database", "is not a database that headrace can use")],
        ),
        (
            "{database: 'sqlite:///x.db'}",
            [("warning", "ledger.database", "is relative to the folder where headrace starts")],
        ),
        (
            "{segment_bytes: 2000000, journal_bytes: 1999999}",
            [("error", "ledger.journal_bytes", "is smaller than ledger.segment_bytes")],
        ),
        ("{segment_bytes: 2000000, journal_bytes: 2000000}", []),
    ],
)
def test_ledger(problems, ledger: str, expected: list[tuple[str, str, str]]) -> None:
    """The ledger's database and its journal's bounds are judged before the start."""
    assert summary(problems(OWN % "" + f"ledger: {ledger}\n")) == expected


def test_relative_files_count_from_the_declaration(load, tmp_path: Path) -> None:
    """Paths in the file do not depend on where headrace is started."""
    (tmp_path / "a.pem").touch()
    (tmp_path / "w.gguf").touch()
    text = "version: 1\nmodels: {m: {source: 'file:w.gguf'}}\npools: {p: {model: m}}\n"
    declaration = load(text + "gateway: {tls: {certificate: a.pem, key: ./a.pem}}\n").declaration
    assert declaration.gateway.tls is not None
    assert declaration.gateway.tls.certificate == str(tmp_path / "a.pem")
    assert declaration.models["m"].source == f"file:{tmp_path / 'w.gguf'}"


def test_declared_ports_do_not_meet(problems) -> None:
    """A pool's replicas count up from its port: they must not reach another pool's, or the gateway's."""
    pools = "  a: {model: m, port: 8000, replicas: 3}\n  b: {model: m, port: 8002}\n  c: {model: m, port: 7070}\n"
    found = problems(f"version: 1\nmodels: {{m: {{source: 'file:.'}}}}\npools:\n{pools}")
    assert summary(found) == [
        ("error", "pools.b.port", "needs port 8002, which pools.a.port has"),
        ("error", "pools.c.port", "needs port 7070, which gateway.listen has"),
    ]


def test_events_that_an_engine_elsewhere_does_not_tell(problems) -> None:
    """Asking llama.cpp for events of its KV cache does nothing; vLLM has them."""
    events = ", telemetry: {kv_events: true}"
    assert problems(REMOTE % ("'https://a'", events)) == ()
    found = problems((REMOTE % ("'https://a'", events)).replace("engine: vllm", "engine: llamacpp"))
    said = "has no effect: llamacpp does not tell of its KV cache"
    assert summary(found) == [("warning", "pools.p.telemetry.kv_events", said)]
