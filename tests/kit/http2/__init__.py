"""HTTP/2 for tests: a client's frames, and a plain server for h2spec."""
