"""What a gateway worker needs of the section `identity`: part of `gateway_plan.GatewayPlan`."""

import msgspec

from headrace.declaration.identity_section import ClaimRule, IdentitySection, OidcIssuer


class ClaimPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`ClaimRule`, field for field."""

    claim: str
    values: dict[str, str]
    default: str | None


class IssuerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One identity provider."""

    name: str
    issuer: str
    audience: tuple[str, ...]
    jwks_url: str | None
    algorithms: tuple[str, ...]
    leeway_s: float
    refresh_s: float
    keep_s: float
    ca: str | None
    subject_claim: str
    tenant: ClaimPlan
    project: ClaimPlan | None
    request_class: ClaimPlan | None


class TrustedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`TrustedHeaders`, field for field."""

    addresses: tuple[str, ...]
    tenant_header: str
    project_header: str
    subject_header: str


class IdentityPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Who may call besides the holders of keys."""

    issuers: tuple[IssuerPlan, ...] = ()
    trusted: TrustedPlan | None = None


def compile_identity(section: IdentitySection) -> IdentityPlan:
    """Put the declared section into the plan's words."""
    trusted = section.trusted_headers
    return IdentityPlan(
        issuers=tuple(_issuer(name, one) for name, one in section.oidc.items()),
        trusted=None if trusted is None else msgspec.convert(trusted.model_dump(), TrustedPlan),
    )


def _issuer(name: str, section: OidcIssuer) -> IssuerPlan:
    return IssuerPlan(
        name=name,
        issuer=section.issuer,
        audience=section.audience,
        jwks_url=section.jwks_url,
        algorithms=section.algorithms,
        leeway_s=section.leeway_s,
        refresh_s=section.refresh_s,
        keep_s=section.keep_s,
        ca=section.ca,
        subject_claim=section.subject_claim,
        tenant=_claim(section.tenant),
        project=None if section.project is None else _claim(section.project),
        request_class=None if section.request_class is None else _claim(section.request_class),
    )


def _claim(rule: ClaimRule) -> ClaimPlan:
    return ClaimPlan(claim=rule.claim, values=rule.values, default=rule.default)
