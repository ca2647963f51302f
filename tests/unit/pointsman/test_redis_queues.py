"""Ids of entries survive a round trip; a foreign id is detected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.names import name_problem
from pointsman.redis_queues import MAX_OFFSET, entry_id, id_before, lease_group, offset_after


@given(st.integers(0, MAX_OFFSET - 1))
def test_the_offset_after_an_entry_is_its_own_and_one(offset: int) -> None:
    assert offset_after(entry_id(offset)) == offset + 1
    assert offset_after(id_before(offset)) == offset


def test_the_name_of_a_group_with_leases_is_not_valid_for_a_group() -> None:
    assert lease_group("billing") == "pop:billing"
    assert name_problem(lease_group("billing"))


def test_the_first_entry_of_a_stream_is_offset_0_and_an_empty_stream_ends_at_0() -> None:
    assert entry_id(0) == "0-1"
    assert offset_after("0-0") == 0
    assert offset_after(f"0-{MAX_OFFSET}") == MAX_OFFSET


@pytest.mark.parametrize("last_id", ["1-1", "1795280605328-0", "0", "0-", "0-01", "0--1", f"0-{MAX_OFFSET + 1}", ""])
def test_an_id_that_was_made_otherwise_has_no_offset(last_id: str) -> None:
    assert offset_after(last_id) is None
