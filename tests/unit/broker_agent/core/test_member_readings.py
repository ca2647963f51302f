"""What members report of their queues, within limits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

from pointsman_agent.core.member_readings import GroupReading, MemberReadings, QueueReading, QueueReport
from pointsman_agent.core.queue import QueueKey

Q0, Q1, Q2 = (QueueKey("orders", number) for number in range(3))


def reading(position: int = 7, *, call: float | None = None) -> QueueReading:
    return QueueReading(position, position - 1, 1, call)


def report(*queues: QueueKey, group: str = "billing", released: tuple[QueueKey, ...] = ()) -> GroupReading:
    return GroupReading(group, {queue: reading() for queue in queues}, released)


def take(readings: MemberReadings, stream: int, *reports: GroupReading, now: float = 100.0) -> None:
    readings.take(stream, reports, groups={each.group for each in reports}, now=now)


def queues_of(readings: MemberReadings, stream: int, group: str = "billing") -> Mapping[QueueKey, QueueReport]:
    member = readings.of(stream, group)
    return {} if member is None else member.queues


def test_a_report_has_what_changed_and_other_queues_stay_as_they_were() -> None:
    readings = MemberReadings()
    take(readings, 1, report(Q0, Q1), now=100.0)
    take(readings, 1, GroupReading("billing", {Q1: reading(9)}, [Q0, Q2], retries=3), now=130.0)

    assert queues_of(readings, 1) == {Q1: QueueReport(reading(9), 130.0)}
    member = readings.of(1, "billing")
    assert member is not None
    assert member.last is not None
    assert (member.last.retries, readings.count) == (3, 1)


def test_a_running_call_ages_until_the_member_reports_its_end() -> None:
    readings = MemberReadings()
    take(readings, 1, GroupReading("billing", {Q0: reading(call=5.0), Q1: reading()}), now=100.0)

    assert queues_of(readings, 1)[Q0].oldest_call(now=160.0) == 65.0
    assert queues_of(readings, 1)[Q1].oldest_call(now=160.0) is None


def test_a_group_that_a_heartbeat_no_longer_names_is_forgotten() -> None:
    readings = MemberReadings()
    take(readings, 1, report(Q0), report(Q1, Q2, group="audit"))
    readings.take(1, [], groups={"audit"}, now=130.0)

    assert (queues_of(readings, 1), readings.count) == ({}, 2)
    assert set(queues_of(readings, 1, "audit")) == {Q1, Q2}


def test_an_ended_stream_leaves_nothing() -> None:
    readings = MemberReadings()
    take(readings, 1, report(Q0, Q1))
    take(readings, 2, report(Q2))
    readings.drop(1)
    readings.drop(3)

    assert (queues_of(readings, 1), readings.count) == ({}, 1)


def test_queues_beyond_the_limits_are_left_out_and_counted_until_there_is_room() -> None:
    readings = MemberReadings(max_queues=3, max_queues_of_stream=2)
    take(readings, 1, report(Q0, Q1, Q2))
    take(readings, 2, report(Q0, Q1))
    assert (set(queues_of(readings, 1)), set(queues_of(readings, 2))) == ({Q0, Q1}, {Q0})
    assert (readings.count, readings.left_out) == (3, 2)

    take(readings, 1, report(Q2, released=(Q0,)))
    take(readings, 1, report(Q1))
    assert (set(queues_of(readings, 1)), readings.count, readings.left_out) == ({Q1, Q2}, 3, 2)


def test_a_queue_takes_about_half_a_kilobyte() -> None:
    """As broker_agent/README.md says; each heartbeat has its own text of the topic's name."""
    readings = MemberReadings()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for stream in range(20):
            topic = "".join(("orders-of-", str(stream)))
            queues = {
                QueueKey(topic, 10_000 + n): QueueReading(10**6 + n, 10**6 + n, 1_000 + n, 0.5 + n) for n in range(500)
            }
            take(readings, stream, GroupReading("billing", queues))
            del queues
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert readings.count == 10_000
    assert 300 < (after - before) / readings.count < 600
