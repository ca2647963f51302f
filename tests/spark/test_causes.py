"""Incidents, causes and ranks from complete histories: the tables for stories written row by row."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.spark.histories import NameServer, Row, moment
from tests.spark.storybook import FIRST, SECOND, Stories, book

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def story(play: Callable[[list[NameServer], Row], None]) -> None:
    """Add a story of two days, whose rows may be written in any order."""

    def in_order(one: NameServer, two: NameServer, b: Row) -> None:
        b |= {"zone": "z1", "host": "h1"}
        servers = [one, two]
        for server in servers:
            server.say("REGISTERED", moment(10), b, incarnation="i0", broker_version="7.1.0")
        play(servers, b)
        for server in servers:
            server.rows.sort(key=lambda row: (row["event_at"], row["seq"]))
            for seq, row in enumerate(server.rows, start=1):
                row["seq"] = seq
            server.stop(moment(2 * 86_400 - 10))

    book.add(play.__name__, in_order)


def cause_of(stories: Stories, name: str) -> tuple[str | None, str | None]:
    (row,) = stories.rows("flapping", name, broker_name="b", day=FIRST)
    return row["cause"], row["cause_says"]


def others(b: Row, count: int) -> list[Row]:
    return [b | {"broker_name": f"other{n}", "broker_addr": f"other{n}:6379"} for n in range(count)]


@story
def rack_fails(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        for n, one in enumerate([b, *others(b, 4)]):
            server.say("REGISTERED", moment(20), one)
            server.outage(one, moment(5_000 + n), until=moment(5_100 + n))
        server.outage(b, moment(50_000), until=moment(50_100))


def test_outages_of_an_incident_count_against_it_and_not_against_its_brokers(stories: Stories) -> None:
    (incident,) = stories.rows("incidents", "rack_fails", day=FIRST)
    (row,) = stories.rows("flapping", "rack_fails", broker_name="b", day=FIRST)
    charges = stories.rows("flap_charges", "rack_fails", day=FIRST)

    assert (incident["scope"], incident["scope_name"], incident["brokers"]) == ("host", "h1", 5)
    assert (incident["from_at"], incident["to_at"], incident["back_at"]) == (
        moment(5_000),
        moment(5_004),
        moment(5_104),
    )
    assert incident["down_seconds"] == 500.0
    assert [(charge["broker_name"], charge["charged_at"]) for charge in charges] == [("b", moment(50_000))]
    assert (row["down_count"], row["incident_downs"], row["sign_count"]) == (2, 1, 0)
    (ranked,) = stories.rows("flap_ranking", "rack_fails", broker_name="b", day=SECOND)
    assert (ranked["outages"], ranked["days"], ranked["rank"]) == (1, 2, 1)


@story
def loops(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        for n in range(5):
            at = 1_000 + 61 * n + (900 if n == 4 else 0)
            server.say("EXPIRED", moment(at), b, reason="STREAM_BROKEN", incarnation=f"i{n}")
            server.say("REGISTERED", moment(at + 5), b, incarnation=f"i{n + 1}", broker_version="7.1.0")
        for n in range(5, 9):
            at = 20_000 + 61 * n
            server.say("RESTARTED", moment(at), b, incarnation=f"i{n + 1}", broker_version="7.1.0")


@story
def comes_and_goes(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        for at in (1_000, 1_061, 5_000, 40_000, 40_500):
            server.say("EXPIRED", moment(at), b, reason="STREAM_BROKEN")
            server.say("REGISTERED", moment(at + 5), b, incarnation=f"i{at}", broker_version="7.1.0")


def test_new_processes_at_a_regular_period_are_a_restart_loop_and_others_are_not(stories: Stories) -> None:
    assert cause_of(stories, "loops") == ("restart_loop", "9 restarts, every 61 s")
    cause, evidence = cause_of(stories, "comes_and_goes")
    assert (cause, evidence) == ("unknown", "stream broken, no failed probe, process afterwards unknown")


@story
def is_upgraded(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        server.say("EXPIRED", moment(50_500), b, reason="STREAM_BROKEN")
        server.say("REGISTERED", moment(50_580), b, incarnation="i1", broker_version="7.2.0")


def test_a_new_version_just_after_the_outage_is_a_deploy(stories: Stories) -> None:
    assert cause_of(stories, "is_upgraded") == ("deploy", "7.1.0 to 7.2.0 at 14:03Z")


@story
def is_restarted_one_by_one(servers: list[NameServer], b: Row) -> None:
    """Also on the second day, and one of them over the midnight before."""
    for server in servers:
        for n, one in enumerate([b, *others(b, 3)]):
            server.say("REGISTERED", moment(20), one, incarnation="i0")
            for day, at in enumerate((3_000, 86_390, 90_000)):
                began = at + 40 * n
                old, new = {"incarnation": f"i{day}"}, {"incarnation": f"i{day + 1}"}
                server.say("PROBE_FAILED", moment(began), one | old, reason="REFUSED", detail={"evidence": "STRONG"})
                server.say("REREGISTERED", moment(began + 30), one | new)


def test_brokers_restarted_one_after_another_are_a_rolling_restart_that_counts_against_them(stories: Stories) -> None:
    first, second = (stories.rows("rolling_restarts", "is_restarted_one_by_one", day=day) for day in (FIRST, SECOND))

    assert [(row["brokers"], row["unplanned"], row["from_at"]) for row in first] == [(4, 4, moment(3_000))]
    assert [(row["brokers"], row["from_at"]) for row in second] == [(3, moment(86_430)), (4, moment(90_000))]
    assert stories.rows("incidents", "is_restarted_one_by_one") == []
    (row,) = stories.rows("flapping", "is_restarted_one_by_one", broker_name="b", day=SECOND)
    assert (row["incident_downs"], row["cause"]) == (0, "rolling_restart")
    causes = stories.rows("outage_causes", "is_restarted_one_by_one", broker_name="b")
    assert [(row["dt"], row["start_at"], row["open"], row["cause"]) for row in causes] == [
        (FIRST, moment(3_000), False, "rolling_restart"),
        (FIRST, moment(86_390), True, "unknown"),
        (SECOND, moment(86_390), False, "process_died"),
        (SECOND, moment(90_000), False, "rolling_restart"),
    ]


@story
def falls_with_others(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        all_of_them = [one | {"incarnation": "i0"} for one in (b, *others(b, 3))]
        for one in all_of_them[1:]:
            server.say("REGISTERED", moment(20), one)
        for at in (5_000, 30_000):
            for n, one in enumerate(all_of_them):
                server.outage(one, moment(at + n), until=moment(at + 60))
        server.outage(b, moment(60_000), until=moment(60_060))


@story
def is_seen_by_one_only(servers: list[NameServer], b: Row) -> None:
    servers[0].outage(b, moment(1_000), until=moment(3_000))
    servers[1].outage(b, moment(5_000), until=moment(9_000))
    for server in servers:
        server.outage(b, moment(60_000), until=moment(60_060))


def test_outages_with_others_of_the_same_process_or_seen_by_one_side_only_are_network_outages(stories: Stories) -> None:
    assert cause_of(stories, "falls_with_others") == (
        "network",
        (
            "2 of 3 outages: no heartbeats, no failed probe, 4 brokers silent together on host h1, "
            "same process afterwards"
        ),
    )
    assert cause_of(stories, "is_seen_by_one_only") == ("network", "2 times only some name servers saw it down")


@story
def beats_late(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        for n, at in enumerate((10_000, 30_000, 33_000, 70_000, 80_000)):
            if n != 2:
                server.say("LATE_HEARTBEAT", moment(at - 200), b, interval_ms=50_000)
            server.outage(b, moment(at), until=moment(at + 60))


def test_late_heartbeats_before_most_outages_are_overload(stories: Stories) -> None:
    assert cause_of(stories, "beats_late") == ("overload", "late heartbeats before 4 of 5 outages")


@story
def is_stopped(servers: list[NameServer], b: Row) -> None:
    for server in servers:
        for at in (1_000, 40_000):
            server.say("UNREGISTERED", moment(at), b, reason="SHUTDOWN")
            server.say("REGISTERED", moment(at + 100), b)


@story
def is_well(servers: list[NameServer], b: Row) -> None:
    servers[0].say("SUSPECTED", moment(4_000), b)


def test_graceful_shutdowns_are_planned_and_a_broker_without_outages_has_no_cause(stories: Stories) -> None:
    assert cause_of(stories, "is_stopped") == ("planned", "2 planned shutdowns")
    assert cause_of(stories, "is_well") == (None, None)


@story
def is_late_around_boundaries(servers: list[NameServer], b: Row) -> None:
    one, two = servers
    for at in (599.9, 4_200.0, 86_399.9):
        one.say("LATE_HEARTBEAT", moment(at), b)
        two.say("LATE_HEARTBEAT", moment(at + 0.2), b)
    one.say("RESTARTED", moment(86_399.95), b, incarnation="i1")
    two.say("RESTARTED", moment(86_400.05), b, incarnation="i1")
    two.say("LATE_HEARTBEAT", moment(86_500), b)


def test_an_event_that_two_observers_saw_on_both_sides_of_a_boundary_or_midnight_counts_once(stories: Stories) -> None:
    first, second = (
        [
            (charge["cause"], charge["charged_at"])
            for charge in stories.rows("flap_charges", "is_late_around_boundaries", day=day)
        ]
        for day in (FIRST, SECOND)
    )
    assert first == [
        ("LATE_HEARTBEAT", moment(599.9)),
        ("LATE_HEARTBEAT", moment(4_200)),
        ("LATE_HEARTBEAT", moment(86_399.9)),
        ("RESTARTED", moment(86_399.95)),
    ]
    assert second == [("LATE_HEARTBEAT", moment(86_500))]
