"""Measurements of brokers merged over the fleet, and what should be done about topics and groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pointsman_namesrv.core.fleet_queues import Finding, FleetQueues, GroupNow
from pointsman_namesrv.core.model import GroupKey
from pointsman_namesrv.core.reported_queue_stats import GroupTotals, QueueLag, QueuePuts, QueueStats, TopicTotals
from tests.kit.name_server.queue_stats import NOTHING_MEASURED

A, B, ELSEWHERE = GroupKey("c1", "a"), GroupKey("c1", "b"), GroupKey("c2", "a")
REGISTERED = {"orders": 8, "invoices": 4}


def measured(
    topics: Mapping[str, tuple[float, ...]] = {},  # not changed
    *groups: GroupTotals,
    lags: tuple[QueueLag, ...] = (),
) -> QueueStats:
    """A measurement with the put rates of each topic's queues."""
    return replace(
        NOTHING_MEASURED,
        top_topics=tuple(
            TopicTotals(topic, len(rates), rates.count(0.0), sum(rates), max(rates), 10, 5)
            for topic, rates in topics.items()
        ),
        top_put_rates=tuple(
            QueuePuts(topic, n, rate, 5, 100) for topic, rates in topics.items() for n, rate in enumerate(rates) if rate
        ),
        top_lags=lags,
        top_groups=groups,
    )


def group(
    name: str = "billing", topic: str = "orders", *, members: int = 2, lag: int = 0, **more: float
) -> GroupTotals:
    facts = {"queue_count": 4, "lag": lag, "highest_lag": lag, "member_count": members} | more
    return GroupTotals(name, topic, **facts)  # type: ignore[arg-type]  # whatever the test names


def fleet(*measurements: tuple[GroupKey, QueueStats], topic: str = "", is_warming: bool = False) -> FleetQueues:
    merged = FleetQueues(topic)
    for key, stats in measurements:
        merged.add(key, stats, is_warming=is_warming)
    return merged


def findings(of: FleetQueues) -> list[str]:
    """The kinds found, with what they are about."""
    found = [f"{each.topic}: {finding.kind}" for each in of.topics(100) for finding in each.findings()]
    return found + [
        f"{each.group} {each.topic}: {finding.kind}"
        for each in of.groups(100)
        for finding in of.findings(each, lambda _, topic: REGISTERED.get(topic, 0))
    ]


def test_a_topic_is_the_sum_over_its_brokers_and_no_other_cluster() -> None:
    merged = fleet(
        (A, measured({"orders": (1.0, 2.0), "invoices": (0.0, 0.0)})),
        (B, measured({"orders": (9.0, 0.0)})),
        (ELSEWHERE, measured({"orders": (50.0,)})),
    )
    elsewhere, orders, invoices = merged.topics(10)

    assert (elsewhere.cluster, elsewhere.put_rate) == ("c2", 50.0)
    assert (orders.queue_count, orders.idle_queue_count, orders.put_rate, orders.depth) == (4, 1, 12.0, 20)
    assert (orders.highest_put_rate, orders.hottest, orders.skew) == (9.0, ("b", 0), 3.0)
    assert (invoices.put_rate, invoices.skew, invoices.hottest) == (0.0, 0.0, None)
    assert [(each.key, each.puts.put_rate) for each in merged.busiest_queues(2)] == [(ELSEWHERE, 50.0), (B, 9.0)]
    assert len(merged.topics(1)) == 1


def test_a_hot_queue_is_named_with_what_to_do() -> None:
    merged = fleet((A, measured({"orders": (1.0, 2.0)})), (B, measured({"orders": (12.0, 0.0)})))
    (orders,) = merged.topics(10)
    (found,) = orders.findings()

    assert found.kind == "key_skew"
    assert found.says == (
        "queue 0 of topic orders on b gets 12.0 of 15.0 messages per second, 3.2 times the mean of the 4 queues"
    )
    assert "SubShards({key: 4})" in found.cure


def test_a_hot_queue_that_no_measurement_names_gives_none() -> None:
    busier = replace(measured({"orders": (90.0, 0.0)}), top_put_rates=())
    (orders,) = fleet((A, measured({"orders": (12.0, 0.0)})), (B, busier)).topics(10)

    assert (orders.highest_put_rate, orders.hottest, list(orders.findings())) == (90.0, None, [])


@pytest.mark.parametrize(
    "topics",
    [{"orders": (9.0, 1.0, 1.0, 1.0)}, {"orders": (0.9, 0.0, 0.0, 0.0)}, {"%RETRY%g": (9.0, 0.0, 0.0, 0.0)}],
    ids=["three times the mean", "slow", "a group's own"],
)
def test_a_topic_that_is_not_hot(topics: Mapping[str, tuple[float, ...]]) -> None:
    assert findings(fleet((A, measured(topics)))) == []


def test_a_group_is_the_sum_over_its_brokers_with_the_members_of_the_agent_that_knows_most() -> None:
    merged = fleet(
        (A, measured({}, group(members=2, lag=100, put_rate=5.0, commit_rate=7.0, behind_queue_count=1))),
        (B, measured({}, group(members=3, lag=20, put_rate=1.0), group("audit", lag=500))),
    )
    audit, billing = merged.groups(10)

    assert (audit.group, audit.lag) == ("audit", 500)
    assert (billing.queue_count, billing.member_count, billing.lag, billing.highest_lag) == (8, 3, 120, 100)
    assert (billing.put_rate, billing.commit_rate, billing.behind_queue_count) == (6.0, 7.0, 1)
    assert billing.catch_up_seconds == 120.0


@pytest.mark.parametrize(
    ("lag", "put_rate", "commit_rate", "seconds"),
    [(100, 5.0, 7.0, 50.0), (100, 5.0, 5.0, None), (100, 5.0, None, None), (0, 5.0, 5.0, 0.0), (100, 0.0, 0.0, None)],
)
def test_the_time_to_catch_up(lag: int, put_rate: float, commit_rate: float | None, seconds: float | None) -> None:
    now = GroupNow("c1", "billing", "orders", lag=lag, put_rate=put_rate, commit_rate=commit_rate)
    assert now.catch_up_seconds == seconds


@pytest.mark.parametrize(
    ("totals", "found"),
    [
        (group(members=8), []),
        (group(members=9), ["idle_members"]),
        (group(members=0, lag=0), []),
        (group(members=0, lag=1), ["no_members"]),
        (group(members=8, lag=900, behind_queue_count=1), ["too_few_queues"]),
        (group(members=7, lag=900, behind_queue_count=1), ["falling_behind"]),
        (group(members=2, lag=900, stuck_queue_count=1), ["stuck"]),
        (group(members=2, lag=900), []),
        (group(topic="%RETRY%billing", members=0, lag=900), []),
        (group(topic="%DLQ%billing", members=90, lag=0), []),
    ],
)
def test_what_should_be_done_about_a_group(totals: GroupTotals, found: list[str]) -> None:
    assert findings(fleet((A, measured({}, totals)))) == [f"billing {totals.topic}: {kind}" for kind in found]


def test_a_member_that_is_idle_in_one_topic_may_have_queues_of_another() -> None:
    both = measured({}, group(members=7), group(topic="invoices", members=7))
    assert findings(fleet((A, both))) == []
    assert findings(fleet((A, both), topic="invoices")) == []
    assert findings(fleet((A, measured({}, group(topic="invoices", members=7))))) == ["billing invoices: idle_members"]


def test_a_group_whose_agent_has_just_started_may_have_members() -> None:
    merged = fleet((A, measured({}, group(members=0, lag=5))), is_warming=True)
    assert findings(merged) == []


def test_what_is_said_of_a_group_names_the_numbers() -> None:
    totals = group(members=2, lag=900, behind_queue_count=3, stuck_queue_count=1)
    merged = fleet((A, measured({}, totals)))
    (billing,) = merged.groups(1)

    assert merged.findings(billing, lambda *_: 8) == [
        Finding(
            "stuck",
            "group billing is stuck in 1 of its 4 queues of topic orders",
            "`pointsmanctl group billing` names the queues, their members and what they stand on",
        ),
        Finding(
            "falling_behind",
            "group billing lags by 900 messages in topic orders, and in 3 queues more arrives than it reads",
            "start more members (up to 8 get a queue each), raise consume_concurrency, or speed up the listener",
        ),
    ]


def test_a_rebalance_storm_is_found_once_for_its_group() -> None:
    calm = group("audit", membership_changes=20)
    both = (group(membership_changes=3), group(topic="invoices", membership_changes=3), calm)
    assert findings(fleet((A, measured({}, *both)))) == []
    merged = fleet((A, measured({}, *both)), (B, measured({}, group(membership_changes=21))))
    assert findings(merged) == ["billing orders: rebalance_storm"]
    billing = next(each for each in merged.groups(10) if (each.group, each.topic) == ("billing", "orders"))
    (storm,) = merged.findings(billing, lambda *_: 8)
    assert storm.says == "the members of group billing changed 21 times in ten minutes"
    assert storm.cure.startswith("`pointsmanctl group billing` shows who has just joined")


def test_dead_letters_that_arrive_are_found_once_for_their_group() -> None:
    both = (group(), group(topic="invoices"), group("audit"))
    letters = {"%DLQ%billing": (0.03,), "%DLQ%audit": (0.0,)}
    merged = fleet((A, measured(letters, *both)), (B, measured(letters)), (ELSEWHERE, measured({}, *both)))
    assert findings(merged) == ["billing orders: dead_letters"]

    only_orders = fleet((A, measured(letters, *both)), topic="orders")
    billing = next(each for each in only_orders.groups(10) if each.group == "billing")
    assert only_orders.findings(billing, lambda *_: 8) == [
        Finding(
            "dead_letters",
            "group billing sends messages to its dead letters, 0.03 per second",
            "the logs of its consumers name each with its error: repair the listener, then consume %DLQ%billing",
        )
    ]


def test_only_one_topic_is_shown_if_it_is_named() -> None:
    lags = (QueueLag("billing", "orders", 1, 5, 1.0), QueueLag("billing", "invoices", 0, 9, 1.0))
    stats = measured({"orders": (1.0,), "invoices": (2.0,)}, group(), group(topic="invoices"), lags=lags)
    merged, whole = fleet((A, stats), topic="orders"), fleet((A, stats))

    assert [each.topic for each in merged.topics(10)] == ["orders"]
    assert [each.puts.topic for each in merged.busiest_queues(10)] == ["orders"]
    assert [each.topic for each in merged.groups(10)] == ["orders"]
    assert [each.lag for each in merged.longest_lags(10)] == [lags[0]]
    assert [each.lag for each in whole.longest_lags(10)] == [lags[1], lags[0]]
