"""Rates, depths and lags of queues, compared with plain lists, and the top of each list."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.core.measured_queue_stats import (
    MAX_MESSAGES,
    MAX_PERIOD,
    TOP,
    GroupLoad,
    QueueEnd,
    QueueMeter,
    Tally,
)
from pointsman_agent.core.membership_changes import ChangeCounts
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.queue_stats.collector import LiveQueues
from pointsman_agent.queue_stats.reporter import MAX_LIVE_BYTES, from_status, to_live_message, to_message

ORDERS = QueueKey("orders", 0)


def held(max_offset: int, *, trimmed: int = 0) -> QueueEnd:
    """A queue after ``max_offset`` messages, of which the first ``trimmed`` were removed."""
    return QueueEnd(trimmed, max_offset, max_offset - trimmed)


def metered(*looks: tuple[float, QueueEnd]) -> QueueMeter:
    """A meter after some polls of one queue."""
    meter = QueueMeter()
    for at, end in looks:
        meter.take({ORDERS: end}, now=at)
    return meter


def test_a_put_rate_is_the_growth_between_two_polls_divided_by_their_time() -> None:
    meter = metered((100.0, held(50)), (110.0, held(80)), (115.0, held(80)))

    assert meter.last_rate(ORDERS) == 0.0
    assert meter.average_rate(ORDERS) == 2.0
    assert meter.measured_seconds(ORDERS) == 15.0
    assert meter.end_of(ORDERS) == held(80)


def test_a_queue_that_was_measured_once_has_no_rate_however_full_it_is() -> None:
    meter = metered((100.0, held(1_000)))

    assert (meter.last_rate(ORDERS), meter.average_rate(ORDERS)) == (0.0, 0.0)
    assert meter.end_of(ORDERS) == held(1_000)


def test_a_new_period_resets_the_growth_and_keeps_the_end_of_the_queue() -> None:
    meter = metered((100.0, held(0)), (110.0, held(100)))
    meter.begin_period()

    assert (meter.average_rate(ORDERS), meter.measured_seconds(ORDERS)) == (0.0, 0.0)
    meter.take({ORDERS: held(130)}, now=120.0)
    assert meter.average_rate(ORDERS) == 3.0


def test_trimming_changes_the_depth_and_not_the_rate() -> None:
    meter = metered((100.0, held(10)), (110.0, held(20, trimmed=15)), (120.0, held(20, trimmed=20)))

    assert meter.average_rate(ORDERS) == 0.5
    assert meter.end_of(ORDERS) == QueueEnd(20, 20, 0)


@pytest.mark.parametrize(
    "recreated",
    [
        pytest.param(held(5), id="ends-before-its-end"),
        pytest.param(held(500), id="recreated-and-filled-beyond-its-old-end"),
    ],
)
def test_the_rate_of_a_recreated_queue_starts_from_zero(recreated: QueueEnd) -> None:
    meter = metered((100.0, held(50, trimmed=10)), (110.0, held(100, trimmed=10)), (120.0, recreated))

    assert (meter.last_rate(ORDERS), meter.average_rate(ORDERS)) == (0.0, 0.0)
    meter.take({ORDERS: held(recreated.max_offset + 20)}, now=130.0)
    assert meter.average_rate(ORDERS) == 2.0


def test_a_second_poll_at_the_same_moment_changes_nothing() -> None:
    meter = metered((100.0, held(50)), (100.0, held(60)), (110.0, held(70)))

    assert meter.last_rate(ORDERS) == 2.0


def test_a_removed_queue_is_dropped_and_starts_from_zero_when_it_returns() -> None:
    meter = metered((100.0, held(50)))
    meter.take({QueueKey("other", 1): held(1)}, now=100.0)
    meter.keep_only({QueueKey("other", 1)})

    assert list(meter) == [QueueKey("other", 1)]
    assert len(meter) == 1
    assert meter.end_of(ORDERS) is None
    assert (meter.last_rate(ORDERS), meter.average_rate(ORDERS), meter.measured_seconds(ORDERS)) == (0.0, 0.0, 0.0)
    meter.take({ORDERS: held(90)}, now=110.0)
    assert meter.last_rate(ORDERS) == 0.0


QUEUES = st.builds(QueueKey, st.sampled_from("ab"), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.floats(0.5, 1_000), st.dictionaries(QUEUES, st.integers(0, 5))),
        st.tuples(st.just("period"), st.just(0.0), st.just({})),
        st.tuples(st.just("recreate"), st.just(0.0), st.dictionaries(QUEUES, st.just(0), max_size=2)),
    ),
    max_size=30,
)


@given(STEPS)
def test_rates_equal_those_computed_from_the_list_of_polls(steps: list[tuple[str, float, dict[QueueKey, int]]]) -> None:
    meter, now = QueueMeter(), 0.0
    ends: dict[QueueKey, int] = defaultdict(int)
    looks: dict[QueueKey, list[tuple[float, int]]] = defaultdict(list)
    begun: dict[QueueKey, int] = defaultdict(int)
    for what, seconds, queues in steps:
        now += seconds
        for queue, added in queues.items():
            ends[queue] = ends[queue] + added if what == "look" else 0
        if what == "look":
            meter.take({queue: held(ends[queue]) for queue in queues}, now=now)
            for queue in queues:
                if looks[queue] and looks[queue][-1][1] > ends[queue]:
                    looks[queue], begun[queue] = [], 0
                looks[queue].append((now, ends[queue]))
        elif what == "period":
            meter.begin_period()
            begun.update({queue: max(0, len(seen) - 1) for queue, seen in looks.items()})

        for queue, seen in looks.items():
            of_period = seen[begun[queue] :]
            took = of_period[-1][0] - of_period[0][0] if of_period else 0.0
            average = (of_period[-1][1] - of_period[0][1]) / took if took else 0.0
            assert meter.average_rate(queue) == pytest.approx(average)
            last = (seen[-1][1] - seen[-2][1]) / (seen[-1][0] - seen[-2][0]) if len(seen) > 1 else 0.0
            assert meter.last_rate(queue) == pytest.approx(last)
            assert meter.average_rate(queue) >= 0


def test_a_lag_is_the_distance_of_the_committed_offset_from_the_end_and_never_negative() -> None:
    tally = Tally()
    for queue_id, committed in enumerate((40, 50, 60)):
        tally.add_commit("g", QueueKey("orders", queue_id), committed, max_offset=50, put_rate=1.5)
    stats = tally.finish()

    assert [astuple(each) for each in stats.top_lags] == [("g", "orders", 0, 10, 1.5, 40, None)]
    assert [astuple(each) for each in stats.top_groups] == [("g", "orders", 3, 10, 10, 0, 4.5, None, 0, 0, 0, 0)]
    assert stats.lag == 10


def test_a_group_falls_behind_in_the_queues_whose_lag_grows_and_is_not_short() -> None:
    tally = Tally()
    for queue_id, (lag, put_rate, commit_rate, is_waiting) in enumerate(
        [
            (601, 10.0, 9.0, False),
            (600, 10.0, 9.0, False),
            (601, 10.0, 10.0, False),
            (601, 10.0, None, False),
            (601, 10.0, 0.0, True),
        ]
    ):
        tally.add_commit(
            "g",
            QueueKey("orders", queue_id),
            100,
            max_offset=100 + lag,
            put_rate=put_rate,
            commit_rate=commit_rate,
            is_waiting=is_waiting,
        )
    tally.add_commit("g", QueueKey("invoices", 0), 5, max_offset=7, put_rate=0.0, commit_rate=3.0)
    tally.add_commit("new", QueueKey("orders", 0), 0, max_offset=701, put_rate=10.0)
    stuck = {("g", "orders"): 2, ("g", "elsewhere"): 1}
    orders, new, _invoices = tally.finish(stuck=stuck).top_groups

    assert (orders.put_rate, orders.commit_rate, orders.behind_queue_count, orders.stuck_queue_count) == (50, 28, 1, 2)
    assert (new.put_rate, new.commit_rate, new.behind_queue_count, new.stuck_queue_count) == (10, None, 0, 0)
    assert tally.loads(stuck) == {
        "g": GroupLoad(lag=3_006, put_rate=50, commit_rate=31, behind_queue_count=1, stuck_queue_count=2),
        "new": GroupLoad(lag=701, put_rate=10, commit_rate=None),
    }


def test_a_topic_reports_how_evenly_its_queues_are_filled() -> None:
    tally = Tally()
    for queue_id, (depth, rate) in enumerate([(10, 8.0), (5, 0.0), (0, 1.0), (1, 0.0)]):
        tally.add_queue(QueueKey("orders", queue_id), depth=depth, put_rate=rate, seconds=600.0 + queue_id)
    stats = tally.finish(unmeasured=3)

    assert [astuple(each) for each in stats.top_topics] == [("orders", 4, 2, 9.0, 8.0, 16, 10)]
    assert [astuple(each) for each in stats.top_put_rates] == [("orders", 0, 8.0, 10, 0), ("orders", 2, 1.0, 0, 0)]
    assert (stats.period, stats.queue_count, stats.unmeasured_queue_count, stats.topic_count) == (603.0, 4, 3, 1)
    assert (stats.depth, stats.put_rate) == (16, 9.0)


def test_a_group_reports_its_members_once_for_each_of_its_topics() -> None:
    tally = Tally()
    tally.add_commit("g", QueueKey("a", 0), 0, max_offset=1, put_rate=0.0)
    tally.add_commit("g", QueueKey("b", 0), 0, max_offset=2, put_rate=0.0)
    stats = tally.finish(members={"g": 7, "another": 1})

    assert [(each.topic, each.member_count) for each in stats.top_groups] == [("b", 7), ("a", 7)]


def test_nothing_measured_is_all_zeros() -> None:
    stats = Tally().finish()

    assert to_message(stats) == wire.QueueStats(period={})  # type: ignore[arg-type]  # an empty Duration
    assert (stats.top_put_rates, stats.top_lags, stats.top_topics, stats.top_groups) == ((), (), (), ())


def test_numbers_too_large_for_a_reader_are_capped() -> None:
    tally = Tally()
    for queue_id in range(2):
        tally.add_queue(QueueKey("orders", queue_id), depth=2**64 - 1, put_rate=1e300, seconds=1e12)
        tally.add_commit("g", QueueKey("orders", queue_id), 0, max_offset=2**64 - 1, put_rate=0.0)
    stats = tally.finish()
    message = to_message(stats)

    assert {stats.depth, stats.lag, stats.top_topics[0].highest_depth, stats.top_groups[0].lag} == {MAX_MESSAGES}
    assert stats.period == MAX_PERIOD
    assert (message.depth, message.period.seconds) == (MAX_MESSAGES, MAX_PERIOD)


MEASURED = st.dictionaries(
    st.builds(QueueKey, st.sampled_from("abcdefgh"), st.integers(0, 40)),
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0, 7.0])),
    max_size=300,
)
COMMITTED = st.dictionaries(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("abcdefgh"), st.integers(0, 40)), st.integers(0, 5), max_size=300
)


@given(MEASURED, COMMITTED, st.randoms())
def test_tops_and_totals_do_not_depend_on_the_order_of_arrival(
    queues: dict[QueueKey, tuple[int, float]], commits: dict[tuple[str, str, int], int], random: Random
) -> None:
    tally = Tally()
    for queue, (depth, rate) in shuffled(queues, random).items():
        tally.add_queue(queue, depth=depth, put_rate=rate)
    for (group, topic, queue_id), committed in shuffled(commits, random).items():
        tally.add_commit(group, QueueKey(topic, queue_id), committed, max_offset=3, put_rate=0.0)
    stats = tally.finish()

    fastest = sorted(((-rate, queue, depth) for queue, (depth, rate) in queues.items() if rate))[:TOP]
    assert [(-each.put_rate, (each.topic, each.queue_id), each.depth) for each in stats.top_put_rates] == fastest
    lags = {key: max(0, 3 - committed) for key, committed in commits.items()}
    farthest = sorted((-lag, key) for key, lag in lags.items() if lag)[:TOP]
    assert [(-each.lag, (each.group, each.topic, each.queue_id)) for each in stats.top_lags] == farthest
    assert stats.depth == sum(depth for depth, _ in queues.values())
    assert stats.put_rate == pytest.approx(sum(rate for _, rate in queues.values()))
    assert stats.lag == sum(lags.values())
    assert stats.queue_count == len(queues)
    assert sum(each.queue_count for each in stats.top_topics) == len(queues)
    of_groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (group, topic, _), lag in lags.items():
        of_groups[group, topic].append(lag)
    groups = sorted((-sum(found), key, len(found), max(found)) for key, found in of_groups.items())[:TOP]
    assert [(-g.lag, (g.group, g.topic), g.queue_count, g.highest_lag) for g in stats.top_groups] == groups


def shuffled(facts: dict, random: Random) -> dict:  # type: ignore[type-arg]  # any facts
    items = list(facts.items())
    random.shuffle(items)
    return dict(items)


def test_a_message_contains_all_measurements() -> None:
    tally = Tally()
    tally.add_queue(QueueKey("orders", 3), depth=9, put_rate=1.25, seconds=600.5)
    tally.add_commit("g", QueueKey("orders", 3), 5, max_offset=9, put_rate=1.25, commit_rate=0.5)
    stats = tally.finish(
        unmeasured=1, members={"g": 2}, changes={"g": ChangeCounts(21, 40)}, stuck={("g", "orders"): 1}
    )
    (puts,), (lag,) = stats.top_put_rates, stats.top_lags
    known = replace(stats, top_put_rates=(replace(puts, bytes=512),), top_lags=(replace(lag, oldest_unread=1.5),))

    assert to_message(known) == wire.QueueStats(
        period={"seconds": 600, "nanos": 500_000_000},  # type: ignore[arg-type]  # a Duration
        queue_count=1,
        unmeasured_queue_count=1,
        topic_count=1,
        depth=9,
        put_rate=1.25,
        lag=4,
        top_put_rates=[wire.QueuePuts(topic="orders", queue_id=3, put_rate=1.25, depth=9, bytes=512)],
        top_lags=[
            wire.QueueLag(
                group="g",
                topic="orders",
                queue_id=3,
                lag=4,
                put_rate=1.25,
                oldest_unread={"seconds": 1, "nanos": 500_000_000},  # type: ignore[arg-type]  # a Duration
            )
        ],
        top_topics=[
            wire.TopicTotals(
                topic="orders", queue_count=1, put_rate=1.25, highest_put_rate=1.25, depth=9, highest_depth=9
            )
        ],
        top_groups=[
            wire.GroupTotals(
                group="g",
                topic="orders",
                queue_count=1,
                lag=4,
                highest_lag=4,
                member_count=2,
                put_rate=1.25,
                commit_rate=0.5,
                stuck_queue_count=1,
                membership_changes=21,
                membership_changes_in_hour=40,
            )
        ],
    )


def live_with(names: str) -> LiveQueues:
    """A measurement whose lists are full."""
    tally = Tally()
    for n in range(TOP):
        queue = QueueKey(f"{names}{n:02}", 3)
        tally.add_queue(queue, depth=9, put_rate=1.0 + n, seconds=30.0)
        tally.add_commit(f"{names}{n:02}", queue, 5, max_offset=9, put_rate=1.0)
    return LiveQueues(tally.finish(), at=100.0, interval=30.0, is_warming=True)


def test_a_heartbeat_carries_the_measurement_with_its_age() -> None:
    live = live_with("orders")
    message = wire.LiveQueues.FromString(to_live_message(live, now=112.5))

    assert message.stats == to_message(live.stats)
    assert (message.age.ToMilliseconds(), message.interval.ToMilliseconds(), message.is_warming) == (
        12_500,
        30_000,
        True,
    )


def test_a_measurement_with_long_names_loses_the_ends_of_its_lists() -> None:
    live = live_with("n" * 125)
    body = to_live_message(live, now=100.0)
    stats = wire.LiveQueues.FromString(body).stats

    assert len(to_message(live.stats).SerializeToString()) > MAX_LIVE_BYTES >= len(body)
    assert (stats.queue_count, len(stats.top_put_rates), len(stats.top_groups)) == (20, 10, 10)
    assert stats.top_put_rates[0].put_rate == 20.0


def test_a_status_of_a_later_version_is_not_known_to_be_recorded() -> None:
    assert from_status(wire.REPORT_QUEUE_STATS_STATUS_STALE_GENERATION) == "stale_generation"
    assert from_status(wire.ReportQueueStatsResponse(status=99).status) == "failed"  # type: ignore[arg-type]  # of a later version
