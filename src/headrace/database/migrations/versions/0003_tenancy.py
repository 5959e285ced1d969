"""Organisations and tenants made over the API, suspensions, operators' roles, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables; every admin key of before keeps the right to everything, which it had."""
    op.add_column("keys", sa.Column("suspended_at", sa.Double))
    op.add_column("keys", sa.Column("version", sa.BigInteger, nullable=False, server_default="1"))
    op.create_table(
        "tenancy_entries",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("changed_at", sa.Double, nullable=False),
    )
    op.create_table(
        "suspensions",
        sa.Column("level", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since_at", sa.Double, nullable=False),
    )
    op.create_table(
        "admin_grants",
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
    )
    op.create_table(
        "declared_tenancy",
        sa.Column("file", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "audit",
        sa.Column("number", number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_tenant", "audit", ["tenant", "number"])
    op.execute("INSERT INTO changes (subject, version) VALUES ('tenancy', 0)")
    op.execute(
        "INSERT INTO admin_grants (subject, role, tenant, created_at) "
        "SELECT 'key:' || key_id, 'owner', NULL, created_at FROM keys WHERE scope = 'admin'"
    )
    for statement in _APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)


_SAID = "the audit log is append-only"
_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{verb.lower()} BEFORE {verb} ON audit BEGIN SELECT RAISE(ABORT, '{_SAID}'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        (
            "CREATE FUNCTION audit_refuse() RETURNS trigger AS $$ "
            f"BEGIN RAISE EXCEPTION '{_SAID}'; END $$ LANGUAGE plpgsql"
        ),
        (
            "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse()"
        ),
    ],
}


def downgrade() -> None:
    """Not offered: restore a back-up (docs/backup.md)."""
    raise NotImplementedError("headrace's schema has no downgrade: restore a back-up (docs/backup.md)")
