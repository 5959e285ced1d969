"""Pure decisions of admission: no clock, no sockets; times come as arguments."""
