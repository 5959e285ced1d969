"""What was changed about a request rather than to refuse it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; earlier rows have none of it."""
    op.add_column("requests", sa.Column("degraded", sa.Text))


def downgrade() -> None:
    """Not offered: restore a back-up (docs/backup.md)."""
    raise NotImplementedError("headrace's schema has no downgrade: restore a back-up (docs/backup.md)")
