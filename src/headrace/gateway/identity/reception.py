"""What identity keeps from one plan to the next: issuers with their keys, verified tokens, judged addresses."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from headrace.declaration.identity_plan import IdentityPlan, TrustedPlan
from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.clock import Clock
from headrace.gateway.identity.bearer import Identity
from headrace.gateway.identity.issuer_watch import IssuerWatch
from headrace.gateway.identity.tokens import Issuer, TokenDesk
from headrace.gateway.identity.trusted_headers import TrustedHeaders
from headrace.tenancy.keys import KeyRing

Trusts = Mapping[str, ssl.SSLContext]
"""How to trust each issuer's server, by its URL."""


class Reception:
    """Makes an `Identity` for each plan. Concurrency: event loop only."""

    def __init__(self, run_dir: Path, clock: Clock) -> None:
        self._desk = TokenDesk()
        self._watch = IssuerWatch(self._desk, run_dir, clock)
        self._trusted: tuple[TrustedPlan, TrustedHeaders] | None = None

    def prepare(self, plan: IdentityPlan) -> Trusts:
        """Read the files that `plan` names; nothing has changed yet. Raises: OSError, ssl.SSLError.

        Issuers that are followed already are left out: reading the system's authorities takes tens of milliseconds.
        """
        followed = [issuer.plan for issuer in self._watch.issuers]
        return {
            issuer.issuer: ssl.create_default_context(cafile=issuer.ca)
            for issuer in plan.issuers
            if issuer not in followed
        }

    def adopt(self, plan: IdentityPlan, trusts: Trusts) -> None:
        """Follow the declared issuers and gateways in front."""
        self._watch.adopt(plan.issuers, trusts)
        if plan.trusted is None:
            self._trusted = None
        elif self._trusted is None or self._trusted[0] != plan.trusted:
            self._trusted = (plan.trusted, TrustedHeaders(plan.trusted))

    def identity(self, ring: KeyRing, identity: IdentityPlan, tenancy: TenancyPlan) -> Identity:
        """What the pipeline asks by an adopted plan."""
        trusted = self._trusted[1] if self._trusted is not None and identity.trusted is not None else None
        return Identity(ring, tenancy, self._desk if identity.issuers else None, trusted)

    @property
    def issuers(self) -> tuple[Issuer, ...]:
        """The declared issuers as they are now."""
        return self._watch.issuers

    async def wait_first(self, bound_s: float) -> None:
        """Return once every issuer has brought keys, or the bound is over."""
        await self._watch.wait_first(bound_s)

    def close(self) -> None:
        """End what runs in the background."""
        self._watch.close()
