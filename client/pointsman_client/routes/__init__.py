"""How routes are looked up, watched, polled, believed and kept; ``client.py`` is the face of it."""
