"""The schema's history, run by `database.migrate`."""
