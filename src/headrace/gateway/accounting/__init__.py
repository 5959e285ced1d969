"""Step 6 of the request: one Account per request, settled exactly once: ledger record, log line, metrics."""
