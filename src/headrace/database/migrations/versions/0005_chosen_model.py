"""The model that answered, where it is another than the caller asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of earlier rows it is not known."""
    op.add_column("requests", sa.Column("chosen_model", sa.Text))


def downgrade() -> None:
    """Not offered: restore a back-up (docs/backup.md)."""
    raise NotImplementedError("headrace's schema has no downgrade: restore a back-up (docs/backup.md)")
