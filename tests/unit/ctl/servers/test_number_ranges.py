"""Numbers as ranges, compared with a set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_ctl.servers.number_ranges import MAX_NUMBER, NumberRanges

Ranges = list[tuple[int, int]]
RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


@given(RANGES, RANGES)
def test_it_is_the_set_of_its_numbers_in_the_fewest_ranges(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    found = NumberRanges(one)
    found.update(NumberRanges(two))
    numbers = {number for first, last in (*one, *two) for number in range(first, last + 1)}

    assert len(found) == len(numbers)
    assert {number for number in range(50) if number in found} == numbers
    assert all(later.first > earlier.last + 1 for earlier, later in zip(found.ranges, found.ranges[1:], strict=False))
    for begin in range(40):
        assert found.count(begin, begin + 7) == len(numbers & set(range(begin, begin + 7)))
        assert found.first_missing(begin) == next(number for number in range(begin, 99) if number not in numbers)


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (4, 3), (0, MAX_NUMBER + 1)])
def test_what_is_not_a_range_of_numbers_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match=f"{first} to {last} is not a range"):
        NumberRanges([(first, last)])
