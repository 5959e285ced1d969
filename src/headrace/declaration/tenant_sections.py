"""Who calls and how much they may use: `organisations`, `tenants` and their projects, and `quota` for everybody."""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from headrace.declaration.shape import Name, Section
from headrace.domain.request import RequestClass
from headrace.domain.tenant import DegradeKind

COUNT_MOST = 10**12
"""Largest limit: stores and scripts count exactly far beyond it."""
MONEY_MOST = 10**9
"""Largest budget, and GPU seconds a minute: billionths of it fit where they are kept."""


class PerRequest(Section):
    """The most that a single request may ask for; over it: 400."""

    context_tokens: int | None = Field(
        default=None, ge=1, description="Estimated input and output limit together, tokens."
    )
    output_tokens: int | None = Field(
        default=None, ge=1, description="Output limit, tokens; also put into requests that give none."
    )
    body_bytes: int | None = Field(default=None, ge=1, description="Request body, bytes; over it: 413.")
    choices: int | None = Field(default=None, ge=1, description="Answers to one request (`n`).")
    tools: int | None = Field(default=None, ge=0, description="Tools described in one request.")
    images: int | None = Field(default=None, ge=0, description="Images in one request.")


class Limits(Section):
    """What may be used at once and per minute, in any 60 seconds. Limits hold at every level; the tightest wins."""

    requests_per_min: int | None = Field(default=None, ge=0, le=COUNT_MOST, description="Requests per minute.")
    input_tokens_per_min: int | None = Field(
        default=None,
        ge=0,
        le=COUNT_MOST,
        description="Input tokens per minute: estimated first, then as the engine counted.",
    )
    output_tokens_per_min: int | None = Field(
        default=None,
        ge=0,
        le=COUNT_MOST,
        description="Output tokens per minute: a request's output limit first, then as the engine counted.",
    )
    gpu_seconds_per_min: float | None = Field(
        default=None,
        ge=0,
        le=MONEY_MOST,
        description="GPU time per minute, seconds; needs the pools' rates (given or learned).",
    )
    concurrent_requests: int | None = Field(default=None, ge=0, le=COUNT_MOST, description="Requests in work at once.")
    concurrent_interactive: int | None = Field(
        default=None, ge=0, le=COUNT_MOST, description="Requests of class interactive in work at once."
    )
    concurrent_streaming: int | None = Field(
        default=None, ge=0, le=COUNT_MOST, description="Streamed requests in work at once."
    )
    concurrent_offline: int | None = Field(
        default=None, ge=0, le=COUNT_MOST, description="Requests of class offline in work at once."
    )
    per_request: PerRequest = Field(default=PerRequest(), description="Caps of a single request.")


class Budget(Section):
    """Money that may be spent, in the currency of `prices`; calendar periods in UTC."""

    per_day: float | None = Field(default=None, ge=0, le=MONEY_MOST, description="Per calendar day (UTC).")
    per_month: float | None = Field(default=None, ge=0, le=MONEY_MOST, description="Per calendar month (UTC).")


class Allowance(Section):
    """What every level has: what may be used, and how much of it. Narrower levels can only take away.

    A base of sections, against the rule, so that the levels cannot come to differ.
    """

    models: tuple[str, ...] = Field(default=("*",), description='Models it may use; "*" is all.')
    classes: tuple[RequestClass, ...] = Field(
        default=tuple(RequestClass), description="Classes of requests it may send."
    )
    regions: tuple[str, ...] = Field(default=("*",), description='Regions whose pools may serve it; "*" is all.')
    limits: Limits = Field(default=Limits(), description="What it may use.")
    budget: Budget = Field(default=Budget(), description="What it may spend.")
    suspended: bool = Field(default=False, description="Refuse every new request of it.")


class Organisation(Allowance):
    """Several tenants under common limits."""


class Project(Allowance):
    """A part of a tenant: keys made for it are under its limits too."""


class Degrade(Section):
    """One rung of the ladder for requests that find their pool full, in the order given."""

    step: DegradeKind = Field(description="What to do: wait, shorten the output, answer with another model, refuse.")
    models: tuple[str, ...] = Field(default=("*",), description='For requests of these models; "*" is all.')
    from_wait_s: float = Field(
        default=0.0, ge=0, le=3600, description="Taken once the wait to be expected is longer than this."
    )
    output_tokens: int | None = Field(default=None, ge=1, description="Output limit of step shorten, tokens.")
    model: Name | None = Field(default=None, description="Model that answers in step cheaper_model.")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        if (self.output_tokens is None) == (self.step is DegradeKind.SHORTEN):
            raise ValueError("output_tokens belongs to step shorten, and only there")
        if (self.model is None) == (self.step is DegradeKind.CHEAPER_MODEL):
            raise ValueError("model belongs to step cheaper_model, and only there")
        return self


ProjectName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
"""As Name, but without a slash: TENANT/PROJECT is one project and no other, whatever tenants are called."""


class TenantSection(Allowance):
    """One team or application that calls."""

    organisation: Name | None = Field(default=None, description="Declared organisation whose limits hold as well.")
    weight: float = Field(
        default=1.0, ge=0.001, le=1000, description="Share of a full pool, against the other tenants' weights."
    )
    default_class: RequestClass = Field(
        default=RequestClass.STANDARD, description="Class of requests that carry no x-headrace-class."
    )
    degrade: tuple[Degrade, ...] = Field(default=(), description="What to do before refusing, when a pool is full.")
    projects: dict[ProjectName, Project] = Field(default={}, description="Projects by name.")

    @model_validator(mode="after")
    def _default_is_allowed(self) -> Self:
        if self.classes and self.default_class not in self.classes:
            raise ValueError(f"default_class {self.default_class.value} is not among its classes")
        return self


class Quota(Section):
    """Limits over all callers together, and how quotas are shown."""

    limits: Limits = Field(default=Limits(), description="What all callers together may use.")
    budget: Budget = Field(default=Budget(), description="What all callers together may spend.")
    named_tenants: int = Field(
        default=50,
        ge=0,
        le=1000,
        description="Tenants that metrics name, in the declared order; the rest are counted together as other.",
    )
