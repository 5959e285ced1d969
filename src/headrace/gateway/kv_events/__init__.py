"""What engines tell of their KV caches as it happens: stored, removed, cleared. Beside the steps, as `endpoints/`.

Their blocks are named by token ids, which do not join with the prompt index's hashes of text: what is used of them are
counts. An engine that has cleared its cache, started anew or evicts heavily holds less than the index believes.
"""
