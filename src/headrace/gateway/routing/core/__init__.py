"""Pure decisions of routing: no clock, no sockets."""
