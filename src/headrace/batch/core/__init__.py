"""What is decided without clock, disk or socket."""
