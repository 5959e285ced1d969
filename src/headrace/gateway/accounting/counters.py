"""The gateway's own counters: plain numbers until scraped. `exposition.py` turns them into Prometheus text."""

from headrace.gateway.accounting.histogram import Histogram
from headrace.gateway.accounting.tenant_counters import TenantCounters
from headrace.ledger.record import RequestRecord
from headrace.telemetry.catalogue import E2E, ITL, QUEUE, RESUME_GAP, TPOT, TTFT, UNKNOWN_MODEL


class ModelCounters:
    """What is counted for one declared model."""

    __slots__ = (
        "cached_input_tokens",
        "e2e",
        "ended",
        "failovers",
        "hedges",
        "input_tokens",
        "itl",
        "output_tokens",
        "queue",
        "resume_gap",
        "resumes",
        "retries",
        "tpot",
        "ttft",
        "unresumed",
    )

    def __init__(self) -> None:
        self.ended: dict[tuple[str, str], int] = {}
        """Requests by (outcome, code)."""
        self.failovers: dict[str, int] = {}
        self.retries = 0
        self.hedges: dict[str, int] = {}
        """By what became of them."""
        self.resumes: dict[str, int] = {}
        """By cause."""
        self.unresumed: dict[str, int] = {}
        """By reason."""
        self.input_tokens = 0
        self.cached_input_tokens = 0
        self.output_tokens = 0
        self.ttft = Histogram(TTFT.buckets)
        self.tpot = Histogram(TPOT.buckets)
        self.itl = Histogram(ITL.buckets)
        self.e2e = Histogram(E2E.buckets)
        self.queue = Histogram(QUEUE.buckets)
        self.resume_gap = Histogram(RESUME_GAP.buckets)

    def count_end(self, record: RequestRecord) -> None:
        """A request has ended: its tokens as far as known, its times; E2E and TPOT only of completed ones."""
        code = record.code
        key = (record.outcome, code or "")
        self.ended[key] = self.ended.get(key, 0) + 1
        if record.input_tokens is not None:
            self.input_tokens += record.input_tokens
        if record.cached_input_tokens is not None:
            self.cached_input_tokens += record.cached_input_tokens
        if record.output_tokens is not None:
            self.output_tokens += record.output_tokens
        if record.queue_s is not None:
            self.queue.observe(record.queue_s)
        if record.ttft_s is not None:
            self.ttft.observe(record.ttft_s)
        if code is None and record.e2e_s is not None:
            self.e2e.observe(record.e2e_s)
            if record.tpot_s is not None:
                self.tpot.observe(record.tpot_s)


class Counters:
    """All counters of one worker. Series are bounded: one set per declared model, and one for all unknown ones."""

    def __init__(self) -> None:
        self.unknown = ModelCounters()
        self.models: dict[str, ModelCounters] = {UNKNOWN_MODEL: self.unknown}
        self.tenants = TenantCounters()
        self.requests = 0
        self.retry_budget_refusals = 0
        self.cancels: dict[str, int] = {}
        """By endpoint."""

    def adopt(self, models: tuple[str, ...]) -> None:
        """Make room for declared models; counts of models that are gone stay, as counters never shrink."""
        for name in models:
            self.models.setdefault(name, ModelCounters())

    def of(self, model: str | None) -> ModelCounters:
        """The counters of a declared model; all other names share one set."""
        return self.unknown if model is None else self.models.get(model, self.unknown)

    def count_cancel(self, endpoint: str) -> None:
        self.cancels[endpoint] = self.cancels.get(endpoint, 0) + 1
