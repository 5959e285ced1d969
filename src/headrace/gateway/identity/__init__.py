"""Step 2 of the request: a credential to a Caller, without I/O, before any body is read."""
