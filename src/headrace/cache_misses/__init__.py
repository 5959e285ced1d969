"""Why prompts that could have shared a cached beginning did not: told from keyed hashes and lengths, never from text.

Pure (`core/`), so that the gateway explains what it sees and the command line two files without a gateway.
"""
