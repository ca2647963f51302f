"""Lag of groups on a broker that is drained, computed from commits and ends of queues."""

from __future__ import annotations

import pytest

from pointsman_agent.core.drain_lag import MAX_GROUPS, GroupLag, LagReport, LagTally
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.queue import QueueKey

ORDERS = QueueKey("orders", 0)
RETRY = QueueKey("%RETRY%billing", 3)


@pytest.mark.parametrize(
    ("committed", "end", "lag"),
    [
        pytest.param(4, QueueEnd(0, 10, 10), 6, id="behind"),
        pytest.param(10, QueueEnd(0, 10, 10), 0, id="at-the-end"),
        pytest.param(12, QueueEnd(0, 10, 10), 0, id="beyond-the-end"),
        pytest.param(0, QueueEnd(8, 10, 2), 2, id="messages-that-are-deleted-cannot-be-read"),
    ],
)
def test_the_lag_is_the_number_of_unread_messages(committed: int, end: QueueEnd, lag: int) -> None:
    tally = LagTally()
    tally.add("billing", ORDERS, committed, end)

    assert tally.finish({"billing": 1}).lag == lag


def test_the_queues_of_a_group_are_added_up_and_its_retry_queues_counted_apart() -> None:
    tally = LagTally()
    tally.add("billing", ORDERS, 0, QueueEnd(0, 5, 5))
    tally.add("billing", RETRY, 1, QueueEnd(0, 3, 3))

    report = tally.finish({"billing": 2})

    assert report == LagReport((GroupLag("billing", 7, 2, 2),), 1, 7, 1, 7)
    assert report.text == "7 unread messages of 1 group"


def test_a_group_without_a_member_is_named_and_not_waited_for() -> None:
    tally = LagTally()
    tally.add("billing", ORDERS, 0, QueueEnd(0, 5, 5))
    tally.add("old", ORDERS, 0, QueueEnd(0, 9, 9))

    report = tally.finish({"billing": 1})

    assert [(each.group, each.is_waited_for) for each in report.groups] == [("billing", True), ("old", False)]
    assert (report.lag, report.awaited_lag) == (14, 5)


def test_while_members_are_unknown_every_group_is_waited_for() -> None:
    tally = LagTally()
    tally.add("old", ORDERS, 0, QueueEnd(0, 9, 9))

    report = tally.finish(None)

    assert report.awaited_lag == 9
    assert report.groups[0].member_count is None


def test_a_report_is_bounded_and_its_totals_count_all() -> None:
    tally, members = LagTally(), {}
    for number in range(3 * MAX_GROUPS):
        tally.add(f"g{number:03}", ORDERS, 0, QueueEnd(0, number + 1, number + 1))
        members[f"g{number:03}"] = number % 2

    report = tally.finish(members, unmeasured=4)

    assert len(report.groups) == 2 * MAX_GROUPS
    assert [each.is_waited_for for each in report.groups] == [True] * MAX_GROUPS + [False] * MAX_GROUPS
    assert report.groups[0].lag == report.group_count == 3 * MAX_GROUPS
    assert report.text.endswith("; 4 queues not measured")
