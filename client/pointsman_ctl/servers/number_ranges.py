"""Sets of offsets or of line numbers as ranges: what a run has done is few ranges of many numbers. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

MAX_NUMBER = 2**63 - 1
"""Highest offset of a RocketMQ queue."""


class NumberRange(NamedTuple):
    """Consecutive numbers."""

    first: int
    last: int


class NumberRanges:
    """A set of numbers from 0 on, kept as sorted ranges with gaps between them."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[NumberRange] = []
        for first, last in ranges:
            self.add(first, last)

    @property
    def ranges(self) -> tuple[NumberRange, ...]:
        """In their order."""
        return tuple(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add the numbers from ``first`` to ``last``. Raises ValueError unless 0 <= first <= last <= MAX_NUMBER."""
        if not 0 <= first <= last <= MAX_NUMBER:
            raise ValueError(f"{first} to {last} is not a range of numbers from 0 to {MAX_NUMBER}")
        # Neighbours without a gap become one range.
        begin = bisect_right(self._ranges, first - 1, key=lambda each: each.last + 1)
        begin -= begin > 0 and self._ranges[begin - 1].last + 1 >= first
        end = bisect_right(self._ranges, last + 1, key=lambda each: each.first)
        joined = self._ranges[begin:end]
        if joined:
            first, last = min(first, joined[0].first), max(last, joined[-1].last)
        self._ranges[begin:end] = [NumberRange(first, last)]

    def update(self, other: NumberRanges) -> None:
        """Add the numbers of another set."""
        for first, last in other.ranges:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        """Whether it has a number."""
        at = bisect_right(self._ranges, number, key=lambda each: each.first)
        return at > 0 and number <= self._ranges[at - 1].last

    def __len__(self) -> int:
        """Return how many numbers it has."""
        return sum(each.last - each.first + 1 for each in self._ranges)

    def count(self, begin: int, end: int) -> int:
        """Return how many numbers it has from ``begin`` to before ``end``."""
        return sum(max(0, min(each.last + 1, end) - max(each.first, begin)) for each in self._ranges)

    def first_missing(self, begin: int) -> int:
        """Return the lowest number from ``begin`` on that it does not have."""
        at = bisect_right(self._ranges, begin, key=lambda each: each.first)
        return max(begin, self._ranges[at - 1].last + 1) if at > 0 else begin
