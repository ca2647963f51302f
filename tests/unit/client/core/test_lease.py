"""What a group with leases has finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman_client.core.lease import GroupBacklog


@pytest.mark.parametrize(
    ("backlog", "finished"), [(GroupBacklog(0, 0), 0), (GroupBacklog(10, 0), 10), (GroupBacklog(10, 4), 6)]
)
def test_the_finished_offset_is_the_end_minus_the_lag(backlog: GroupBacklog, finished: int) -> None:
    assert backlog.finished_offset == finished


@given(st.lists(st.booleans(), max_size=50))
def test_the_finished_offset_never_goes_back(steps: list[bool]) -> None:
    backlog, before = GroupBacklog(0, 0), 0
    for is_delivery in steps:
        if is_delivery:
            backlog = GroupBacklog(backlog.next_offset + 1, backlog.unfinished + 1)
        elif backlog.unfinished:
            backlog = GroupBacklog(backlog.next_offset, backlog.unfinished - 1)
        assert backlog.finished_offset >= before
        before = backlog.finished_offset
