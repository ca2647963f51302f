"""The name server without its surroundings: pure, synchronous, and told the time.

Imports the standard library minus I/O, time, randomness and logging, and the pure half of ``pointsman.wire``.
Mutators return what happened as frozen events; a call that raises has changed nothing.
"""
