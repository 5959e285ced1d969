"""vLLM: see `driver`."""
