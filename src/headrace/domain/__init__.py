"""The shared vocabulary: ids, errors, outcomes, endpoints, callers, usage. A leaf: imports nothing of ours."""
