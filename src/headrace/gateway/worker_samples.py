"""What the steps' counts look like at the moment of a scrape: parts of the composition root, `worker.py`."""

from collections.abc import Iterable
from time import monotonic

from headrace.domain.endpoint import EndpointState
from headrace.gateway.accounting.exposition import EndpointSample
from headrace.gateway.accounting.identity_exposition import IssuerSample
from headrace.gateway.accounting.quota_exposition import BudgetSample, QuotaSample
from headrace.gateway.accounting.sharing_exposition import SharingSample
from headrace.gateway.admission.quota import Quota
from headrace.gateway.admission.sharing.keeper import LeaseKeeper
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.identity.reception import Reception


def sample_endpoints(endpoints: Iterable[Endpoint]) -> tuple[EndpointSample, ...]:
    """Every endpoint as it is now."""
    return tuple(
        EndpointSample(
            endpoint=endpoint.endpoint_id,
            state=EndpointState.DRAINING if endpoint.is_draining else endpoint.state,
            in_flight=endpoint.in_flight,
            requests=endpoint.requests,
            failures=endpoint.failures,
        )
        for endpoint in endpoints
    )


def sample_sharing(keeper: LeaseKeeper | None) -> SharingSample | None:
    """None: nothing is shared."""
    figures = keeper.desk.figures() if keeper else None
    return figures and SharingSample(
        is_lost=figures.is_lost,
        members=figures.members,
        exchanges=figures.exchanges,
        failures=figures.failures,
        losses=figures.losses,
    )


def sample_issuers(reception: Reception) -> tuple[IssuerSample, ...]:
    """How the keys of every identity provider came."""
    return tuple(
        IssuerSample(name=one.plan.name, fetched_at=one.fetched_at, fetched=one.fetched, failed=one.failed)
        for one in reception.issuers
    )


def sample_quota(quota: Quota) -> QuotaSample:
    """Refusals, and how far every budget is used."""
    watch = quota.budgets
    return QuotaSample(
        refusals=quota.refusals,
        budgets=tuple(
            BudgetSample(limit_id=meter.limit_id, used_nanos=meter.used(monotonic()), amount_nanos=meter.amount)
            for meter in watch.meters
        ),
        marks=watch.marks,
    )
