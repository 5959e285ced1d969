"""Step 5 of the request: send it to an engine, bring the answer back, try elsewhere while nothing was sent."""
