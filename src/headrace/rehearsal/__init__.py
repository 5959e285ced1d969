"""Virtual time: the gateway's own admission over simulated engines, hours of traffic in seconds.

The decisions are those of production, not a model of them: `gateway/admission/core` runs unchanged. Counterpart:
`simulation/`, which says what an engine would do.
"""
