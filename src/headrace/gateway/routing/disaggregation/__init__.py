"""When a prompt is computed by one engine and answered by another, and by which. See docs/disaggregation.md."""
