"""Between callers, gateway and the batch process: files and batches go through to it, and its lines come back in.

Not a step: what is stored is answered by `headrace.batch`; each line of a batch then takes all six steps.
"""
