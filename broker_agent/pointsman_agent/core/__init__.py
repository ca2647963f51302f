"""What the agent decides. Pure and synchronous: no I/O, no clock, no randomness, no logging; time is an argument."""
