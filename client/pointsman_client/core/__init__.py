"""What the client decides: no loop, no I/O, no clock, no log. Time is an argument (``now``, monotonic seconds)."""
