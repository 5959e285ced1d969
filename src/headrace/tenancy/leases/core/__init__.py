"""Pure decisions of sharing: no clock, no sockets; times come as arguments."""
