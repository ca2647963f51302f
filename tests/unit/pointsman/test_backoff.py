"""Full jitter: uniform between 0 and a bound that doubles up to a cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.backoff import FullJitterBackoff


def test_the_bound_doubles_up_to_the_cap_and_starts_over_after_a_success() -> None:
    backoff = FullJitterBackoff(max, cap=3.0)

    assert [backoff.next_wait() for _ in range(6)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.0, 3.0])

    backoff.reset()
    assert backoff.next_wait() == pytest.approx(0.2)


@given(share=st.floats(0, 1), tries=st.integers(1, 80))
def test_no_wait_is_longer_than_the_cap_or_negative(share: float, tries: int) -> None:
    backoff = FullJitterBackoff(lambda low, high: low + share * (high - low), cap=30.0)

    assert all(0 <= backoff.next_wait() <= 30.0 for _ in range(tries))


def test_jitter_reaches_down_to_no_wait_at_all() -> None:
    assert FullJitterBackoff(min).next_wait() == 0.0


def test_a_cap_below_the_first_bound_applies_from_the_first_wait_on() -> None:
    backoff = FullJitterBackoff(max, cap=0.05)

    assert [backoff.next_wait() for _ in range(3)] == [0.05, 0.05, 0.05]
