"""Files and batches: a process of its own beside the gateway, which answers for both and sends lines in the gaps.

`api.py` answers callers (through the gateway), `desk.py` decides which batch runs, `runner.py` carries one through.
"""
