"""Tables in a file, for daemons and clients; needs the standard library alone."""
