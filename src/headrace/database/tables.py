"""Every table headrace keeps. Migrations make them; `tests/unit/database` checks that the two agree.

Times are UTC epoch seconds (DOUBLE PRECISION): the same on SQLite and PostgreSQL, and what the journal holds.
"""

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

METADATA = MetaData()

REQUESTS = Table(
    "requests",
    METADATA,
    Column("uid", Text, primary_key=True),
    Column("request_id", Text, nullable=False),
    Column("trace_id", Text),
    Column("received_at", Double, nullable=False),
    Column("tenant", Text),
    Column("key_id", Text),
    Column("dialect", Text),
    Column("requested_model", Text),
    Column("pool", Text),
    Column("endpoint", Text),
    Column("stream", Boolean, nullable=False),
    Column("input_tokens", BigInteger),
    Column("cached_input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("queue_s", Double),
    Column("ttft_s", Double),
    Column("tpot_s", Double),
    Column("e2e_s", Double),
    Column("outcome", Text, nullable=False),
    Column("code", Text),
    Column("http_status", Integer),
    Column("attempts", Integer, nullable=False),
    Column("organisation", Text),
    Column("project", Text),
    Column("request_class", Text),
    Column("gpu_s", Double),
    Column("cost_nanos", BigInteger),
    Column("price_version", Text),
    Column("degraded", Text),
    Column("chosen_model", Text),
    Index("requests_received_at", "received_at"),
    sqlite_with_rowid=False,
)
"""One row per request: the journal's projection, columns in the order of `ledger.record.RECORD_FIELDS`.

Uids sort by time, so without a row id the table is clustered by time and its key costs nothing extra.
"""

JOURNAL_POSITIONS = Table(
    "journal_positions",
    METADATA,
    Column("segment", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""How far each journal file is in `requests`; written in the same transaction as its rows."""

JOURNAL_LOSSES = Table(
    "journal_losses",
    METADATA,
    Column("source", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("noted_at", Double, nullable=False),
)
"""What never became a row. `dropped`: records a writer gave up; `torn`: bytes of broken frames; `refused`: records that
the database would not store."""

KEYS = Table(
    "keys",
    METADATA,
    Column("key_id", Text, primary_key=True),
    Column("secret_sha256", LargeBinary, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("allowed_models", Text),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("project", Text),
    Column("limits", Text),
    Column("suspended_at", Double),
    Column("version", BigInteger, nullable=False, server_default="1"),
    Index("keys_tenant", "tenant"),
)
"""API keys without their secrets; `allowed_models` is a JSON array, `limits` the JSON of `domain.quota.LimitSet`."""

CHANGES = Table(
    "changes",
    METADATA,
    Column("subject", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
"""A number per subject (`keys`, `tenancy`) that grows with each change: polling for changes is one cheap look-up."""

TENANCY_ENTRIES = Table(
    "tenancy_entries",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
)
"""Organisations and tenants made over the control API; `body` is their section as JSON, as headrace.yaml has it.
`version` grows with each change."""

SUSPENSIONS = Table(
    "suspensions",
    METADATA,
    Column("level", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("since_at", Double, nullable=False),
)
"""Organisations, tenants and projects (`tenant/project`) that are suspended, wherever they are declared."""

ADMIN_GRANTS = Table(
    "admin_grants",
    METADATA,
    Column("subject", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("tenant", Text),
    Column("created_at", Double, nullable=False),
)
"""What an operator may do, by subject (`key:<key id>`), and for which tenant; NULL: for all."""

DECLARED_TENANCY = Table(
    "declared_tenancy",
    METADATA,
    Column("file", Text, primary_key=True),
    Column("body", Text, nullable=False),
)
"""What a declaration said of callers when that was last noted in the audit log."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("subject", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text),
    Column("before", Text),
    Column("after", Text),
    Index("audit_tenant", "tenant", "number"),
    sqlite_autoincrement=True,
)
"""Every change an operator made, oldest first. Append-only: triggers of the database refuse anything else."""
