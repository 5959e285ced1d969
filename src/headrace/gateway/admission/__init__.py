"""Step 3 of the request: whether it may start now, by the gateway's and the tenant's limits."""
