"""Limits held together with other processes: the keeper of this worker's share, beside the request path."""
