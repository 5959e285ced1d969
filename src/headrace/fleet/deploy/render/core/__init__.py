"""What is rendered, before any target's words: workloads from the declaration. Pure."""
