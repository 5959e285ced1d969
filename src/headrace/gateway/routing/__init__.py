"""Step 4 of the request: which endpoint answers it."""
