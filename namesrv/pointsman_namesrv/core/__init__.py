"""The rules of the name server: pure and synchronous; time is an argument.

Imports the standard library minus I/O, time, randomness and logging, and the pure half of ``pointsman.wire``.
Mutators return their events as frozen values; a call that raises has changed nothing.
"""
