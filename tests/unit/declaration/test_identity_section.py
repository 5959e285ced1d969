"""The section `identity`: what may be believed, and what is refused or doubted with its line."""

from pathlib import Path

import pytest

from headrace.declaration.load import load_declaration
from headrace.declaration.problem import DeclarationError

TOP = """\
version: 1
models: {small: {}}
pools: {p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}}
tenants: {search: {projects: {web: {}}}}
identity:
"""
ISSUER = """\
  oidc:
    corporate:
      issuer: https://idp.example
      audience: [headrace]
      tenant: {claim: groups, values: {/ml/search: search}}
"""


@pytest.fixture
def problems(tmp_path: Path):
    """What is said about a section, as `line: severity: key: ...`."""
    path = tmp_path / "headrace.yaml"

    def check(section: str) -> list[str]:
        path.write_text(TOP + section)
        try:
            found = load_declaration(path, environ={}).warnings
        except DeclarationError as error:
            found = error.problems
        return [f"{one.line}: {one.severity.value}: {one.key}: {one.message} {one.hint or ''}" for one in found]

    return check


def test_a_sound_section_is_taken(problems):
    """Tokens of one provider, and a gateway in front."""
    assert problems(ISSUER + "  trusted_headers: {addresses: [10.0.0.0/8, 127.0.0.1, 'fd00::/16']}\n") == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("https://idp.example", "http://idp.example", "use https"),
        ("https://idp.example", "idp.example", "is no https:// URL"),
        ("audience: [headrace]", "audience: []", "at least one entry"),
        ("audience: [headrace]", "audience: [headrace]\n      algorithms: [HS256]", "must be one of RS256"),
        ("audience: [headrace]", "audience: [headrace]\n      algorithms: [none]", "must be one of RS256"),
        ("audience: [headrace]", "audience: [headrace]\n      leeway_s: 3600", "leeway_s"),
        ("audience: [headrace]", "audience: [headrace]\n      request_class: {claim: c, default: fast}", "interactive"),
        ("audience: [headrace]", "audience: [headrace]\n      jwks_url: http://keys.example/jwks", "use https"),
    ],
)
def test_what_would_believe_anybody_is_refused(problems, before, after, words):
    """Keys over plain http, shared secrets, no signature at all."""
    found = problems(ISSUER.replace(before, after))
    assert any("error" in one and words in one for one in found), found


def test_http_is_allowed_on_this_machine(problems):
    """For a provider in the same pod, and for tests."""
    for host in ("127.0.0.1:8080", "localhost", "[::1]"):
        assert problems(ISSUER.replace("https://idp.example", f"http://{host}")) == []


def test_a_tenant_that_the_file_does_not_have_is_pointed_out(problems):
    """It may be one of the API: a warning with the nearest name."""
    [said] = problems(ISSUER.replace("/ml/search: search", "/ml/search: serach"))
    assert said.startswith("10: warning: identity.oidc.corporate.tenant.values")
    assert 'Did you mean "search"?' in said


def test_two_providers_of_one_issuer_are_refused(problems):
    """Which rules would count?"""
    again = ISSUER.replace("  oidc:\n", "").replace("corporate", "other")
    assert any("have the same issuer" in one for one in problems(ISSUER + again))


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0.0.0.0/0", "would believe everybody"),
        ("'::/0'", "would believe everybody"),
        ("10.0.0.1/8", "is no address or network"),
        ("gateway.example", "is no address or network"),
        ("8.0.0.0/5", "warning"),
    ],
)
def test_addresses_that_believe_too_many_are_refused_or_doubted(problems, address, words):
    """Whoever can send from them can be anybody."""
    [said] = problems(f"  trusted_headers: {{addresses: [{address}]}}\n")
    assert words in said
