"""Epochs of offsets: an operator's reset starts a new one, so that no commit from before it can undo it.

An offset and its epoch are one number where they are compared or stored: of two such numbers the later epoch is higher,
and within an epoch the higher offset. An offset that was never reset has epoch 0, and is that number itself.

An epoch is the time of the reset in milliseconds since 1970, or one more than the last epoch where clocks went back. So
of two resets that do not know of each other, at agents of a master and a slave, the later one holds.
"""

from __future__ import annotations

_OFFSET_BITS = 64
_MAX_OFFSET = (1 << _OFFSET_BITS) - 1
MAX_EPOCH = 253_402_300_799_999
"""The end of the year 9999."""
MAX_AHEAD_MILLIS = 86_400_000
"""By how much another agent's clock may be ahead: a later epoch is refused. Only resets could follow it."""


def with_epoch(offset: int, epoch: int) -> int:
    """Return an offset and its epoch as one number."""
    return epoch << _OFFSET_BITS | offset


def offset_of(number: int) -> int:
    """Return the offset of :func:`with_epoch`."""
    return number & _MAX_OFFSET


def epoch_of(number: int) -> int:
    """Return the epoch of :func:`with_epoch`."""
    return number >> _OFFSET_BITS


def next_epoch(last: int, *, now: int) -> int:
    """Return the epoch of a reset after ``last``; ``now``: milliseconds of the wall clock."""
    return max(last + 1, now)
