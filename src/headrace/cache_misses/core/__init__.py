"""Segments of a prompt -> fingerprint -> difference of two -> judgement of one miss. No clock, no I/O."""
