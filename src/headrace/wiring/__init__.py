"""The only place where concrete meets concrete: composes one instance (supervisor, stores, control API, ledger)."""
