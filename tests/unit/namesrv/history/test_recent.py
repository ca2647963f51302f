"""Recent events: bounded, separate for each cluster, with events of complete clusters, without routine rows."""

from __future__ import annotations

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.model import GroupKey, Reason
from pointsman_namesrv.history.recent import ROUTINE, RecentEvents
from pointsman_namesrv.history.row import Record
from tests.kit.name_server.events import broker_event, facts, topics_event


def remember(recent: RecentEvents, *events: Event) -> RecentEvents:
    for seq, event in enumerate(events, 1):
        recent.add(Record(event, ManualClock().utc_now(), 0, seq))
    return recent


def seqs(records: list[Record]) -> list[int]:
    return [record.seq for record in records]


FOUND = Event(kind=EventKind.CHECKPOINT, reason=Reason.START, broker=broker_event().broker)


def earlier(event: Event, seq: int, run: int = -1) -> Record:
    return Record(event, ManualClock().utc_now(), 0, seq, run=run)


def test_data_found_at_the_start_is_kept_where_nothing_else_is_known() -> None:
    found = FOUND
    daily = Event(kind=EventKind.CHECKPOINT, reason=Reason.DAY, broker=broker_event().broker)
    assert seqs(remember(RecentEvents(), found, daily).of("a")) == [1]
    assert seqs(remember(RecentEvents(), broker_event(), found).of("a")) == [1]


def test_the_events_of_a_name_alone_are_without_those_of_its_cluster_and_restarts() -> None:
    of_cluster = Event(kind=EventKind.GUARD_ON, group=GroupKey("c1", ""))
    others = (of_cluster, broker_event(name="b"), Event(kind=EventKind.NAMESRV_STARTED))
    recent = remember(RecentEvents(), broker_event(), *others, broker_event(EventKind.RESTARTED))

    assert [key.broker_name for key in recent.names()] == ["", "b", "a"]
    assert [record.seq for record in recent.own(GroupKey("c1", "a"))] == [1, 5]
    assert recent.own(GroupKey("c1", "other")) == ()


def test_recent_events_are_bounded_by_broker_and_by_name() -> None:
    recent = remember(RecentEvents(per_broker=2, in_all=3), *(broker_event(name=name) for name in "abaac"))

    assert seqs(recent.of("a")) == [3, 4]
    assert recent.of("b") == []
    assert seqs(recent.of("c")) == [5]


def test_recent_events_of_one_name_in_two_clusters_are_separate() -> None:
    recent = remember(RecentEvents(), *(broker_event(cluster=cluster) for cluster in ("c2", "c1", "c2")))

    assert seqs(recent.of("a")) == [1, 2, 3]
    assert seqs(recent.of("a", cluster="c1")) == [2]


def test_events_of_the_name_and_of_its_cluster_are_listed_together() -> None:
    recent = remember(
        RecentEvents(),
        broker_event(),
        Event(kind=EventKind.PERM_CHANGED, group=GroupKey("c1", "a")),
        Event(kind=EventKind.PERM_CHANGED, group=GroupKey("c1", "other")),
        Event(kind=EventKind.GUARD_ON, group=GroupKey("c1", "")),
        Event(kind=EventKind.GUARD_ON, group=GroupKey("c2", "")),
        broker_event(EventKind.EXPIRED),
    )

    assert seqs(recent.of("a")) == seqs(recent.of("a", cluster="c1")) == [1, 2, 4, 6]
    assert recent.of("a", cluster="c2") == recent.of("unknown") == []


def test_events_about_no_broker_are_listed_for_none() -> None:
    recent = remember(RecentEvents(), Event(kind=EventKind.NAMESRV_READY), Event(kind=EventKind.KV_CHANGED))

    assert recent.of("") == []


@pytest.mark.parametrize("kind", sorted(ROUTINE))
def test_routine_events_neither_push_out_others_nor_keep_topics_in_memory(kind: EventKind) -> None:
    routine = topics_event(3) if kind is EventKind.TOPICS else Event(kind=kind, broker=facts())
    recent = remember(RecentEvents(per_broker=2), broker_event(), *[routine] * 10)

    assert seqs(recent.of("a")) == [1]


def test_earlier_events_come_first_whatever_their_numbers() -> None:
    recent = remember(RecentEvents(per_broker=4), broker_event(), broker_event())
    for record in (earlier(broker_event(), 9), earlier(broker_event(), 3, -2), earlier(broker_event(), 2, -2)):
        recent.add_earlier(record)
    assert [record.order for record in recent.of("a")] == [(-2, 3), (-1, 9), (0, 1), (0, 2)]
    assert [record.order for record in recent.latest(3)] == [(-1, 9), (0, 1), (0, 2)]


def test_earlier_events_displace_none_of_this_run() -> None:
    recent = remember(RecentEvents(in_all=2), broker_event(name="a"))
    for name, seq in (("b", 2), ("c", 1)):
        recent.add_earlier(earlier(broker_event(name=name), seq))
    assert [seqs(recent.of(name)) for name in "abc"] == [[1], [2], []]
    recent.add(Record(broker_event(name="d"), ManualClock().utc_now(), 0, 2))
    assert [seqs(recent.of(name)) for name in "abd"] == [[1], [], [2]], "the oldest is dropped first"


def test_what_was_found_at_the_start_is_dropped_once_earlier_events_are_known() -> None:
    other = Event(kind=EventKind.CHECKPOINT, reason=Reason.START, broker=facts("b"))
    recent = remember(RecentEvents(), FOUND, other, broker_event(EventKind.EXPIRED))
    recent.add_earlier(earlier(broker_event(), 5))
    for _ in recent.drop_found():
        pass
    assert [record.order for record in recent.of("a")] == [(-1, 5), (0, 3)]
    assert [record.order for record in recent.of("b")] == [(0, 2)]


def test_restarts_of_the_node_are_listed_from_the_first_event_of_a_broker_on() -> None:
    started, stopped = Event(kind=EventKind.NAMESRV_STARTED), Event(kind=EventKind.NAMESRV_STOPPED)
    recent = remember(RecentEvents(), started, broker_event(name="new"))
    for record in (earlier(stopped, 3), earlier(broker_event(), 2), earlier(started, 1)):
        recent.add_earlier(record)
    assert [record.order for record in recent.of("a")] == [(-1, 2), (-1, 3), (0, 1)]
    assert [record.order for record in recent.of("new")] == [(0, 2)]
    assert [record.order for record in recent.latest(9)] == [(-1, 2), (0, 2)]
