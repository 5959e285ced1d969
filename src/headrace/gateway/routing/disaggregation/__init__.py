"""A prompt computed by one engine and answered by another. `core/` decides; nothing here is wired in yet.

See docs/disaggregation.md.
"""
