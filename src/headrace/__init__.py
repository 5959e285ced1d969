"""headrace: declare, run, govern, explain and rehearse LLM inference in production."""

__version__ = "0.1.0"
