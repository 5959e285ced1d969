"""What changes between two declarations."""

from typing import Any

from headrace.declaration.builtin import BUILTIN_MODEL, builtin_declaration
from headrace.declaration.diff import Change, diff
from headrace.declaration.model import Declaration


def changed(**sections: Any) -> Declaration:
    """The built-in declaration with some sections merged in."""
    value: dict[str, Any] = builtin_declaration().model_dump()
    for section, keys in sections.items():
        value[section] = {**value[section], **keys} if isinstance(keys, dict) else keys
    return Declaration.model_validate(value)


def test_no_change_is_no_change() -> None:
    """A declaration does not differ from itself."""
    assert diff(builtin_declaration(), changed()) == ()


def test_a_changed_key_says_both_values_and_whether_a_reload_is_enough() -> None:
    """The operator sees what a reload can apply and what needs a restart."""
    after = changed(gateway={"listen": "127.0.0.1:9", "heartbeat_s": None}, ledger={"flush_interval_s": 2.0})
    assert diff(builtin_declaration(), after) == (
        Change(path="gateway.listen", before="127.0.0.1:7070", after="127.0.0.1:9", needs_restart=True),
        Change(path="gateway.heartbeat_s", before="15.0", after="null", needs_restart=False),
        Change(path="ledger.flush_interval_s", before="1.0", after="2.0", needs_restart=False),
    )


def test_pools_that_come_and_go_are_one_line_each() -> None:
    """An added pool shows its own settings, not every default."""
    pools = {"x": {"model": BUILTIN_MODEL, "engine": "vllm", "endpoints": ["http://a"]}}
    value = builtin_declaration().model_dump() | {"pools": pools}
    assert [str(change) for change in diff(builtin_declaration(), Declaration.model_validate(value))] == [
        f"- pools.default: {{batching.max_sequences: 4, model: {BUILTIN_MODEL}}}",
        f"+ pools.x: {{model: {BUILTIN_MODEL}, engine: vllm, endpoints: [http://a]}}",
    ]


def test_a_section_that_appears_shows_its_keys() -> None:
    """Turning TLS on reads as its two files, not as null turning into something."""
    after = changed(gateway={"tls": {"certificate": "a.pem", "key": "b.pem"}})
    expected = ["+ gateway.tls.certificate: a.pem", "+ gateway.tls.key: b.pem"]
    assert [str(change) for change in diff(builtin_declaration(), after)] == expected
    expected = ["- gateway.tls.certificate: a.pem", "- gateway.tls.key: b.pem"]
    assert [str(change) for change in diff(after, builtin_declaration())] == expected


def test_secrets_are_compared_but_never_shown() -> None:
    """A changed token is seen as a change, without either value."""

    def with_token(token: str) -> Declaration:
        pool = {
            "model": "m",
            "engine": "openai",
            "endpoints": ["http://a"],
            "credentials": {"bearer": token, "headers": {"x-key": token}},
        }
        ledger = {"database": f"postgresql://u:{token}@h/d"}
        return Declaration.model_validate({"models": {"m": {}}, "pools": {"p": pool}, "ledger": ledger})

    changes = diff(with_token("canary-1"), with_token("canary-2"))
    assert [change.path for change in changes] == [
        "pools.p.credentials.bearer",
        "pools.p.credentials.headers.x-key",
        "ledger.database",
    ]
    assert "canary" not in repr(changes)
    assert "canary" not in repr(diff(builtin_declaration(), with_token("canary-1")))
