"""The engine model as a pure core: what an inference engine would do with these requests, and when.

Continuous batching, paged KV memory, prefix caches, preemption, speculation and KV transfer, with step times from a
roofline of GPU and model or from a calibration file. It knows no clock, chance or socket: times come in as arguments.
`engine.py` is the table of contents; `virtual_time.py` runs many engines over many arrivals.
"""
