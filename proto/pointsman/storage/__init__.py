"""Tables in a file, for daemons and clients; requires only the standard library."""
