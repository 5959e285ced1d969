"""The judgement: facts of a machine and a resolved pool in, findings out. No clock, socket or file."""
