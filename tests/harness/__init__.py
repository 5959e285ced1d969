"""Real parts for tests: a gateway worker process, a scripted engine, raw sockets. No mocks of our own code."""
