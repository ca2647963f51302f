"""Explanation of a topic's route: which brokers were missing, who saw it, and when clients could know."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from pointsman_report.questions.explanation import ExplainResult, explain
from pointsman_report.questions.route_events import departures, timeline_events
from tests.spark import route_history
from tests.spark.histories import NameServer, broker, moment
from tests.spark.route_history import NIGHT, TOPIC
from tests.spark.topic_history_rows import story_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def then(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ExplainResult:
    source = route_history.tables(spark, tmp_path_factory.mktemp("explain"))
    return explain(source, TOPIC, moment(NIGHT + 60), cluster=None)


def test_a_departure_is_listed_once_with_every_name_server_that_saw_it(then: ExplainResult) -> None:
    assert [(one.group, one.broker_id, one.is_planned) for one in then.departures] == [
        (("c1", "a"), 0, True),
        (("c1", "b"), 0, False),
    ]
    assert [(one.node, one.at) for one in then.departures[1].observations] == [
        ("ns1:9876", moment(NIGHT)),
        ("ns2:9876", moment(NIGHT + 2)),
    ]


def test_the_times_of_its_last_heartbeat_and_of_its_return(then: ExplainResult) -> None:
    lost = then.departures[1]

    assert lost.last_heard_at == moment(NIGHT + 2 - 122)
    assert lost.back_at == moment(NIGHT + 600)
    assert then.missing == then.departures
    assert then.exit_code == 1


def test_when_clients_could_know(then: ExplainResult) -> None:
    expected = then.as_dict()["departures"][1]["clients_could_know"]

    assert expected == {
        "watching_from": "2026-03-02T03:00:00.000Z",
        "watching_by": "2026-03-02T03:00:03.000Z",
        "polling_by": "2026-03-02T03:00:32.000Z",
    }


def test_a_person_reads_a_timeline_with_the_newest_last(then: ExplainResult) -> None:
    text = then.text(ZoneInfo("Europe/Berlin"))
    found = [
        text.index(line)
        for line in (
            "Route of orders",
            "c1/a/0 (a:6379): UNREGISTERED, SHUTDOWN, last heartbeat 02 Mar 03:51:36; not recovered yet (not routed at",
            "c1/b/0 (b:6379): EXPIRED, SILENCE, last heartbeat 02 Mar 03:58:00; recovered 02 Mar 04:10:00",
            "within a second of 02 Mar 04:00:00 to 02 Mar 04:00:02; polling clients: by 02 Mar 04:00:32",
            "the name server became ready, recorded by ns1:9876",
            "c1/a: a maintenance window began (note disk, by me), recorded by ns1:9876, ns2:9876",
            "incident i-1: 3 brokers of zone z1 down at the same time",
        )
    ]

    assert found == sorted(found)


def test_a_broker_that_recovered_before_is_listed_and_not_missing() -> None:
    story = story_of(_rows(), "orders", at=moment(2_000))

    (found,) = departures(story, since=moment(0), at=moment(2_000))

    assert found.back_at == moment(1_100)
    assert not found.lasted_at(moment(2_000))


def test_two_outages_apart_are_two_departures() -> None:
    server = NameServer()
    server.rows = _rows()
    server.say("EXPIRED", moment(3_000), broker("a"), reason="SILENCE", interval_ms=120_000)
    story = story_of(server.rows, "orders", at=moment(4_000))

    assert [one.at for one in departures(story, since=moment(0), at=moment(4_000))] == [moment(1_000), moment(3_000)]


def test_events_before_the_requested_period_are_left_out() -> None:
    story = story_of(_rows(), "orders", at=moment(2_000))

    assert departures(story, since=moment(1_500), at=moment(2_000)) == ()


@pytest.mark.parametrize(
    ("event", "detail", "expected"),
    [
        ("PERM_CHANGED", {"writable": False, "by": "ops"}, "the write permission was wiped (by ops)"),
        ("TOPIC_DELETED", {"topic": "orders"}, "the topic was deleted at the name servers"),
        ("TOPIC_DELETED", {"topic": "another"}, None),
        ("GUARD_ON", {"lost": 3, "baseline": 4}, "the expiry guard turned on (lost 3, baseline 4)"),
        ("HEARTBEATS", {}, None),
    ],
)
def test_other_events_are_described_as_text(event: str, detail: dict[str, object], expected: str | None) -> None:
    server = NameServer()
    server.say(event, moment(10), {"cluster": "c1", "broker_name": "a"}, detail=detail)

    found = timeline_events(story_of(server.rows, "orders", at=moment(20)), "orders", since=moment(0), at=moment(20))

    assert [one.what for one in found] == ([] if expected is None else [expected])


def test_a_change_of_the_topic_by_its_broker_is_listed() -> None:
    server = NameServer()
    for at, topics, removed in (
        (10, {"orders": [2, 3, 6, 0]}, []),
        (20, {}, ["orders"]),
        (30, {"other": [1, 1, 6, 0]}, []),
    ):
        detail = {"part": 1, "parts": 1, "full": False, "base": "v", "topics": topics, "removed": removed}
        server.say("TOPICS", moment(at), broker("a"), detail=detail)

    found = timeline_events(story_of(server.rows, "orders", at=moment(40)), "orders", since=moment(0), at=moment(40))

    assert [one.what for one in found] == [
        "the broker set the topic to 2 read and 3 write queues, perm 6",
        "the broker removed the topic",
    ]


def _rows() -> list[dict[str, object]]:
    server = NameServer().start(moment(0))
    server.say("REGISTERED", moment(1), broker("a"))
    server.outage(broker("a"), moment(1_000), until=moment(1_100))
    return server.rows


def test_times_of_the_zone_are_named(then: ExplainResult) -> None:
    assert datetime.fromisoformat(str(then.as_dict()["route"]["at"])) == moment(NIGHT + 60)
    assert "CET" in then.text(ZoneInfo("Europe/Berlin"))
