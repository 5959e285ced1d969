"""`python -m benchmarks micro`: the request path alone, in this process, bytes in and bytes out, without any socket.

Unlike the rest of this package it imports headrace. Numbers hardly depend on what else the machine does.
"""
