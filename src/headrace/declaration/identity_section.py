"""The section `identity` of headrace.yaml: who may call besides the holders of keys.

Tokens of identity providers (OIDC), and the word of another gateway in front of this one. Counterpart at run time:
`gateway/identity/`.
"""

from ipaddress import ip_address, ip_network
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from headrace.declaration.shape import PATH, Name, Section

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
"""Signatures that may be allowed: with a private key only. A secret shared by all (HS256) and `none` prove nothing."""

HEADER_NAME = r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$"


class ClaimRule(Section):
    """How one claim of a token names a tenant, a project or a class."""

    claim: str = Field(
        min_length=1,
        max_length=128,
        description="Name of the claim; dots go into objects (realm_access.roles). Of a list, the first value that "
        "means something counts.",
    )
    values: dict[str, Name] = Field(
        default={}, description="What each value of the claim means; empty: the value itself is the name."
    )
    default: Name | None = Field(
        default=None, description="For tokens whose claim is missing or means nothing; null: they are refused."
    )


class ClaimChoice(ClaimRule):
    """The same where nothing need be said: without a match, nothing is chosen."""

    default: Name | None = Field(default=None, description="For tokens whose claim is missing or means nothing.")


class OidcIssuer(Section):
    """One identity provider whose tokens are taken as `Authorization: Bearer`."""

    issuer: str = Field(description="Its URL, exactly as in the claim `iss`; https, or http on this machine.")
    audience: tuple[str, ...] = Field(
        min_length=1, description="A token must name at least one of these in its claim `aud`."
    )
    jwks_url: str | None = Field(
        default=None,
        description="Where its public keys are; null: asked for at ISSUER/.well-known/openid-configuration.",
    )
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "PS256", "ES256", "EdDSA"), min_length=1, description="Signatures that are taken."
    )
    leeway_s: float = Field(
        default=30.0, ge=0, le=300, description="How far its clock and this one may differ, seconds."
    )
    refresh_s: float = Field(default=300.0, ge=1, le=86400, description="Between two looks at its keys, seconds.")
    keep_s: float = Field(
        default=86400.0,
        ge=1,
        le=2592000,
        description="How long the last known keys count while it does not answer, seconds.",
    )
    ca: str | None = Field(
        default=None,
        description="PEM file of the certificate authorities to trust; default: the system's.",
        json_schema_extra=PATH,
    )
    subject_claim: str = Field(
        default="sub", min_length=1, max_length=128, description="Who calls, for ledger and logs: the claim to show."
    )
    tenant: ClaimRule = Field(description="Which tenant a token calls for.")
    project: ClaimChoice | None = Field(default=None, description="Which of the tenant's projects; null: none.")
    request_class: ClaimChoice | None = Field(
        default=None, description="Class of its requests: interactive, standard or offline; null: the tenant's."
    )

    @field_validator("issuer", "jwks_url")
    @classmethod
    def _safe_url(cls, value: str | None) -> str | None:
        if value is not None:
            _check_url(value)
        return value


class TrustedHeaders(Section):
    """Another gateway in front of this one that has identified the caller already, and says so in headers."""

    addresses: tuple[str, ...] = Field(
        min_length=1,
        description="Addresses or networks (10.0.0.0/8) that are believed; from all others the headers count nothing.",
    )
    tenant_header: str = Field(default="x-headrace-tenant", pattern=HEADER_NAME, description="Names the tenant.")
    project_header: str = Field(default="x-headrace-project", pattern=HEADER_NAME, description="Names the project.")
    subject_header: str = Field(
        default="x-headrace-subject", pattern=HEADER_NAME, description="Who calls, for ledger and logs."
    )

    @field_validator("addresses")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            try:
                network = ip_network(text, strict=True)
            except ValueError as error:
                raise ValueError(f'"{text}" is no address or network: {error}') from error
            if network.prefixlen == 0:
                raise ValueError(f'"{text}" would believe everybody')
        return value


class IdentitySection(Section):
    """Who may call besides the holders of keys."""

    oidc: dict[Name, OidcIssuer] = Field(default={}, description="Identity providers by name.")
    trusted_headers: TrustedHeaders | None = Field(
        default=None, description="Believe the headers of a gateway in front of this one; null: nobody's."
    )

    @model_validator(mode="after")
    def _each_issuer_once(self) -> Self:
        seen: dict[str, str] = {}
        for name, section in self.oidc.items():
            if section.issuer in seen:
                raise ValueError(f"oidc.{seen[section.issuer]} and oidc.{name} have the same issuer")
            seen[section.issuer] = name
        return self


def _check_url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f'"{text[:100]}" is no https:// URL')
    try:
        is_loopback = parts.hostname == "localhost" or ip_address(parts.hostname).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(f'"{text[:100]}": keys fetched over plain http could be anybody\'s; use https')
