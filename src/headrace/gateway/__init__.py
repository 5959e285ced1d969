"""The request's story. `pipeline.py` is the table of contents; `worker.py` composes one process.

1 entry, 2 identity, 3 admission, 4 routing, 5 forwarding, 6 accounting. `http/` is the wire, `endpoints/` what the
gateway knows of each engine; the six steps are independent of each other and may use both.
"""
