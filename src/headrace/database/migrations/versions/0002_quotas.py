"""Projects and limits of keys; organisation, project, class, GPU time and cost of requests."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; earlier rows have none of it."""
    op.add_column("requests", sa.Column("organisation", sa.Text))
    op.add_column("requests", sa.Column("project", sa.Text))
    op.add_column("requests", sa.Column("request_class", sa.Text))
    op.add_column("requests", sa.Column("gpu_s", sa.Double))
    op.add_column("requests", sa.Column("cost_nanos", sa.BigInteger))
    op.add_column("requests", sa.Column("price_version", sa.Text))
    op.add_column("keys", sa.Column("project", sa.Text))
    op.add_column("keys", sa.Column("limits", sa.Text))


def downgrade() -> None:
    """Not offered: restore a back-up (docs/backup.md)."""
    raise NotImplementedError("headrace's schema has no downgrade: restore a back-up (docs/backup.md)")
