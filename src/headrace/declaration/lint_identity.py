"""What the types cannot see of `identity`: names that claims lead to, and addresses that believe too many."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_network

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.identity_section import ClaimRule
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import KeyPath
from headrace.domain.request import RequestClass

WIDEST_IPV4, WIDEST_IPV6 = 8, 16
"""Networks wider than this are worth a second look: 10.0.0.0/8 is the widest private one."""


def lint_identity(declaration: Declaration) -> Iterator[Finding]:
    """Yield what is wrong or doubtful."""
    projects = {project for tenant in declaration.tenants.values() for project in tenant.projects}
    for name, issuer in declaration.identity.oidc.items():
        path: KeyPath = ("identity", "oidc", name)
        yield from _names((*path, "tenant"), issuer.tenant, declaration.tenants, "tenant")
        if issuer.project is not None:
            yield from _names((*path, "project"), issuer.project, projects, "project")
        if issuer.request_class is not None:
            yield from _classes((*path, "request_class"), issuer.request_class)
    trusted = declaration.identity.trusted_headers
    for number, text in enumerate(trusted.addresses if trusted is not None else ()):
        network = ip_network(text)
        if network.prefixlen < (WIDEST_IPV4 if network.version == 4 else WIDEST_IPV6):
            yield warning(
                ("identity", "trusted_headers", "addresses", number),
                f"believes {network.num_addresses} addresses, whoever they belong to",
                "Name the gateway in front, or its own network.",
            )


def _names(path: KeyPath, rule: ClaimRule, known: Iterable[str], what: str) -> Iterator[Finding]:
    """A name that the file does not have may still be made over the API: only a warning."""
    names = frozenset(known)
    for where, meaning in _meanings(path, rule):
        if meaning not in names:
            nearest = did_you_mean(meaning, names)
            hint = nearest or "It must be made over the API (`headrace tenants create`), or its callers are refused."
            yield warning(where, f"this file declares no {what} {meaning}", hint)


def _classes(path: KeyPath, rule: ClaimRule) -> Iterator[Finding]:
    classes = [one.value for one in RequestClass]
    for where, meaning in _meanings(path, rule):
        if meaning not in classes:
            yield error(where, f"must be one of {', '.join(classes)}", did_you_mean(meaning, classes))


def _meanings(path: KeyPath, rule: ClaimRule) -> Iterator[tuple[KeyPath, str]]:
    for value, meaning in rule.values.items():
        yield (*path, "values", value), meaning
    if rule.default is not None:
        yield (*path, "default"), rule.default
