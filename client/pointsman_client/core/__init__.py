"""Pure decisions of the client: no event loop, I/O, clock or log. Time is an argument (``now``, monotonic seconds)."""
