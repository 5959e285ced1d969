"""The simulated engine: the pure engine model (`simulation/`) in real time behind HTTP, as a real engine speaks it.

`service.py` is the table of contents: a request is read by the dialect, queued in the model, and answered token by
token when the model says so. `process.py` runs it, `headrace sim engine` is its command, docs/simulated-engine.md
tells how.
"""
