"""Limits shared by several processes: a central book, and leases on parts of each limit (docs/sharing.md)."""
