"""What a token must say, what its claims mean, and when an issuer's keys are asked for again."""
