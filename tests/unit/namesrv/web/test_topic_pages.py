"""What is wrong with topics, in words, and how busy their queues are."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from pointsman_namesrv.core.fleet_queues import BrokerLag, BrokerQueue, Finding, GroupNow, TopicNow
from pointsman_namesrv.core.model import GroupKey, QueueConfig, Reason
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.core.reported_queue_stats import QueueLag, QueuePuts
from pointsman_namesrv.web.page_data import Holder, LiveData, TopicData, TopicsData
from pointsman_namesrv.web.page_query import PageQuery
from pointsman_namesrv.web.topic_pages import (
    HEAT_STEPS,
    MAX_QUEUES,
    TopicPage,
    TopicsPage,
    diagnosis,
    problem_of,
    topic_page,
    topics_page,
)
from tests.kit.ctl.command_line import parsed
from tests.kit.name_server.page_facts import FOUR_QUEUES, NODE, NOTHING_MEASURED, broker_row

OUT = ReplicaState(Phase.OUT, Reason.REFUSED)


def holder(
    name: str,
    *ids: int,
    queues: QueueConfig = FOUR_QUEUES,
    perm: int = 6,
    wiped: bool = False,
    out: tuple[int, ...] = (),
) -> Holder:
    rows = [broker_row(name, number, state=OUT) for number in out] + [broker_row(name, number) for number in ids]
    return Holder(GroupKey("c1", name), queues, perm, rows, wiped)


def topic(*holders: Holder, surpluses: tuple[str, ...] = (), live: LiveData = NOTHING_MEASURED) -> TopicData:
    return TopicData(
        node=NODE,
        topic="orders",
        holders=holders,
        live=live,
        absent=[],
        order="",
        surpluses=surpluses,
        is_static=False,
        hidden_on=[],
        watchers=0,
    )


def texts(data: TopicData, *live: TopicNow) -> list[str]:
    return [problem.text for problem in diagnosis(data, live)]


def test_a_topic_with_masters_on_all_brokers_has_no_problem() -> None:
    assert texts(topic(holder("a", 0, 1), holder("b", 0))) == []


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (topic(holder("a", out=(0,))), ["No broker that has it is up: it can neither be written nor read."]),
        (
            topic(holder("a", 0), holder("b", out=(0,)), holder("c")),
            [
                "One broker name is left of 3: c1/a. Its outage would be one of the topic.",
                "2 broker names of 3 not in the routes: c1/b, c1/c.",
            ],
        ),
        (
            topic(holder("a", 1, perm=4, out=(0,))),
            [
                "It cannot be written: no master with writable queues is in the routes.",
                "No master: c1/a is read-only.",
            ],
        ),
        (
            topic(holder("a", 0, perm=4, wiped=True)),
            [
                "It cannot be written: no master with writable queues is in the routes.",
                "An operator wiped the write permission of c1/a.",
            ],
        ),
        (topic(holder("a", 0, perm=2)), ["It cannot be read: no queue has the permission to read."]),
        (
            topic(holder("a", 0, queues=QueueConfig(4, 0, 6))),
            ["It cannot be written: no master with writable queues is in the routes."],
        ),
        (topic(), ["An operator deleted it: it is hidden until its brokers register other topics."]),
        (topic(holder("a", 0), surpluses=("the order has 8 queues",)), ["The order has 8 queues."]),
    ],
)
def test_the_diagnosis_is_in_words(data: TopicData, expected: list[str]) -> None:
    assert texts(data) == expected


def test_a_hot_queue_is_a_finding() -> None:
    now = TopicNow("c1", "orders", queue_count=8, put_rate=100.0, highest_put_rate=90.0, hottest=("a", 3))
    (text,) = texts(topic(holder("a", 0)), now)
    assert text.startswith("Queue 3 of topic orders on a gets 90.0 of 100.0 messages per second")
    assert "To do: " in text


@pytest.mark.parametrize(
    ("known", "up", "writable", "expected"),
    [
        (2, 2, 2, ""),
        (2, 0, 0, "NO_BROKER"),
        (2, 2, 0, "NOT_WRITABLE"),
        (2, 1, 1, "ONE_LEFT"),
        (1, 1, 1, ""),
        (3, 3, 2, "NO_MASTER"),
    ],
)
def test_the_problem_of_a_topic_is_the_worst(known: int, up: int, writable: int, expected: str) -> None:
    assert problem_of(known, up, writable) == expected


# --- the list -------------------------------------------------------------------------------------------------

NAMES = ["%RETRY%g", "audit", "clicks", "orders", "paid"]
LIVE = LiveData(
    node=NODE,
    topics={("c1", "paid"): TopicNow("c1", "paid", put_rate=7.0), ("c2", "paid"): TopicNow("c2", "paid", put_rate=1.0)},
    groups=[(GroupNow("c1", "g", "orders", lag=5), [Finding("stuck", "it is stuck", "look")])],
    queues=[
        BrokerQueue(GroupKey("c1", "a"), QueuePuts("orders", 0, 100.0, 1)),
        BrokerQueue(GroupKey("c1", "a"), QueuePuts("orders", 1, 1.0, 1)),
        BrokerQueue(GroupKey("c1", "a"), QueuePuts("orders", 3, 0.0, 1)),
        BrokerQueue(GroupKey("c1", "a"), QueuePuts("paid", 2, 9.0, 1)),
    ],
    lags=[BrokerLag(GroupKey("c1", "a"), QueueLag("g", "orders", 2, 7, 1.0))],
    broker_count=1,
    measured_count=1,
)


def listed(**parameters: str) -> TopicsPage:
    known, up, writable, queues = (
        array("L", each) for each in ([1, 2, 1, 2, 1], [1, 1, 0, 2, 1], [1, 1, 0, 2, 1], [1, 4, 0, 8, 4])
    )
    data = TopicsData(NODE, NAMES, known, up, writable, queues, ["c1", "c2"])
    return topics_page(data, LIVE, PageQuery("/topics", parameters))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["clicks", "audit", "orders", "paid"]),
        ({"problem": "ANY"}, ["clicks", "audit"]),
        ({"problem": "ONE_LEFT"}, ["audit"]),
        ({"name": "AID"}, ["paid"]),
        ({"system": "yes", "sort": "name"}, NAMES),
        ({"sort": "-name"}, ["paid", "orders", "clicks", "audit"]),
        ({"sort": "-rate"}, ["paid", "audit", "clicks", "orders"]),
        ({"sort": "-queues"}, ["orders", "audit", "paid", "clicks"]),
        ({"sort": "-brokers"}, ["orders", "audit", "paid", "clicks"]),
    ],
)
def test_topics_are_filtered_and_sorted_those_at_risk_first(parameters: dict[str, str], expected: list[str]) -> None:
    assert [each.name for each in listed(**parameters).topics.rows] == expected


def test_rates_are_sums_over_the_clusters_unless_one_is_selected() -> None:
    assert {each.name: each.rate for each in listed().topics.rows}["paid"] == 8.0
    assert {each.name: each.rate for each in listed(cluster="c2").topics.rows}["paid"] == 1.0
    assert listed().counts == {"NO_BROKER": 1, "NOT_WRITABLE": 0, "NO_MASTER": 0, "ONE_LEFT": 1}


def test_the_command_of_the_list_is_one() -> None:
    read, found = parsed(listed(cluster="c2", system="yes").command)
    assert (read, found["cluster"], found["with_system"]) == ("topics", "c2", True)


# --- one topic ------------------------------------------------------------------------------------------------


OF_TOPIC = replace(LIVE, topics={}, queues=[each for each in LIVE.queues if each.puts.topic == "orders"])


def page_of(*holders: Holder, live: LiveData = OF_TOPIC) -> TopicPage:
    return topic_page(topic(*holders, live=live), PageQuery("/topics/orders", {}))


def test_the_hottest_queue_has_the_strongest_colour_and_a_queue_that_is_not_measured_none() -> None:
    page = page_of(holder("a", 0), holder("b", 0))
    assert [cell.heat for cell in page.holders[0].puts] == [HEAT_STEPS, 1, -1, 0]
    assert [cell.heat for cell in page.holders[0].lags] == [-1, -1, HEAT_STEPS, -1]
    assert {cell.heat for cell in page.holders[1].puts} == {-1}
    assert page.holders[0].puts[0].title == "queue 0: 100 messages/s"
    assert (page.highest_rate, page.highest_lag, page.is_measured) == (100.0, 7, True)
    assert not page_of(holder("a", 0), live=NOTHING_MEASURED).is_measured


def test_a_topic_with_very_many_queues_shows_the_first() -> None:
    (shown,) = page_of(holder("a", 0, queues=QueueConfig(2_000, 2_000, 6))).holders
    assert (len(shown.puts), shown.more_queues) == (MAX_QUEUES, 2_000 - MAX_QUEUES)


def test_groups_are_named_with_what_to_do() -> None:
    page = page_of(holder("a", 0))
    assert [(each.path, each.findings) for each in page.groups] == [("/groups/g", [("it is stuck", "look")])]
    assert [parsed(line)[0] for line in page.commands] == ["route", "queues", "watchers"]
