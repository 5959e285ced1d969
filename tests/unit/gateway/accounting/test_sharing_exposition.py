from headrace.gateway.accounting.sharing_exposition import SharingCollector, SharingSample
from headrace.telemetry import catalogue


def test_a_gateway_that_shares_nothing_says_nothing() -> None:
    """Without sharing there are no series of it."""
    assert list(SharingCollector(lambda: None).collect()) == []


def test_sharing_is_shown() -> None:
    """Loss, members and exchanges are metrics of the catalogue."""
    sample = SharingSample(is_lost=True, members=3, exchanges=7, failures=2, losses=1)
    shown = {family.name: family.samples[0].value for family in SharingCollector(lambda: sample).collect()}
    names = (catalogue.SHARING_LOST, catalogue.SHARING_MEMBERS, catalogue.SHARING_EXCHANGES)
    names += (catalogue.SHARING_FAILURES, catalogue.SHARING_LOSSES)
    assert shown == dict(zip([spec.name.removesuffix("_total") for spec in names], [1.0, 3.0, 7, 2, 1], strict=True))
