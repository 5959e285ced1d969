"""What the gateway knows of each engine: its address, state, load and connections; kept fresh by probes and by use.

Not a step: routing reads it, forwarding uses its connections, the prober and the plan write it.
"""
