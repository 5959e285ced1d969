"""Measures headrace beside nginx and its peers: `make bench`, or `python -m benchmarks --help`.

An outside observer: it starts every program as a user would and imports nothing of headrace.
"""
