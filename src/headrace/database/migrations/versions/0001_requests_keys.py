"""Requests, journal positions and losses, keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "requests",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("trace_id", sa.Text),
        sa.Column("received_at", sa.Double, nullable=False),
        sa.Column("tenant", sa.Text),
        sa.Column("key_id", sa.Text),
        sa.Column("dialect", sa.Text),
        sa.Column("requested_model", sa.Text),
        sa.Column("pool", sa.Text),
        sa.Column("endpoint", sa.Text),
        sa.Column("stream", sa.Boolean, nullable=False),
        sa.Column("input_tokens", sa.BigInteger),
        sa.Column("cached_input_tokens", sa.BigInteger),
        sa.Column("output_tokens", sa.BigInteger),
        sa.Column("queue_s", sa.Double),
        sa.Column("ttft_s", sa.Double),
        sa.Column("tpot_s", sa.Double),
        sa.Column("e2e_s", sa.Double),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("http_status", sa.Integer),
        sa.Column("attempts", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("requests_received_at", "requests", ["received_at"])
    op.create_table(
        "journal_positions",
        sa.Column("segment", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "journal_losses",
        sa.Column("source", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("noted_at", sa.Double, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("secret_sha256", sa.LargeBinary, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("allowed_models", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
    )
    op.create_index("keys_tenant", "keys", ["tenant"])
    changes = op.create_table(
        "changes",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(changes, [{"subject": "keys", "version": 0}])


def downgrade() -> None:
    """Not offered: restore a back-up (docs/backup.md)."""
    raise NotImplementedError("headrace's schema has no downgrade: restore a back-up (docs/backup.md)")
