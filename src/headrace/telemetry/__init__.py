"""The one catalogue of metric names, and the log-field names that every line uses."""
