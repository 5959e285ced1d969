"""Reading events, their order, and what a cache holds by them. No clock, no socket."""
