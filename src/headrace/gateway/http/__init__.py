"""The HTTP/1.1 wire on uvloop + httptools: callers on one side, engines on the other. Transport, not a step.

The parser is a library; limits, framing and backpressure are ours. Source: docs/decisions/0001.
"""
