"""Routers side by side on recorded chat traffic: the same requests to the same simulated engines through each in turn.

`mooncake_1000.jsonl` is the beginning of the conversation trace that the Mooncake project published (FAST'25 release,
Apache-2.0), its block names renumbered.
"""
