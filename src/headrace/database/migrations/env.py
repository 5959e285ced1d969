"""Alembic's entry: runs the versions on the connection that `database.migrate` has opened and locked."""

from alembic import context

from headrace.database.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
