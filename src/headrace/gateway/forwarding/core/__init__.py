"""Pure decisions of forwarding: no clock, no sockets; times come as arguments."""
