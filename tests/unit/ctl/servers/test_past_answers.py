"""Answers of several name servers, side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman_ctl.servers.past_answers import PastPage, agree, merged_events

START = datetime(2026, 11, 28, tzinfo=UTC)


def event(name: str, seconds: float, broker: str = "a") -> admin.BrokerEvent:
    identity = broker_pb2.BrokerIdentity(cluster="c1", broker_name=broker, addr="10.0.0.1:1")
    found = admin.BrokerEvent(event=name, identity=identity)
    found.event_at.FromDatetime(START + timedelta(seconds=seconds))
    return found


def merged(*pages: PastPage[admin.BrokerEvent]) -> list[tuple[str, float, list[str]]]:
    return [(each.first.event, (each.at - START).total_seconds(), each.nodes) for each in merged_events(pages)]


def page(node: str, *events: admin.BrokerEvent, is_cut: bool = False) -> PastPage[admin.BrokerEvent]:
    return PastPage(node, events, is_cut)


def test_equal_events_near_in_time_are_one_and_others_are_not() -> None:
    one = page("n1", event("EXPIRED", 900), event("EXPIRED", 100), event("REGISTERED", 1))
    two = page("n2", event("EXPIRED", 130), event("EXPIRED", 90, "b"), event("REGISTERED", 2))

    assert merged(one, two) == [
        ("REGISTERED", 1, ["n1", "n2"]),
        ("EXPIRED", 90, ["n2"]),
        ("EXPIRED", 100, ["n1", "n2"]),
        ("EXPIRED", 900, ["n1"]),
    ]


def test_one_name_servers_events_are_never_merged_nor_those_about_name_servers() -> None:
    started = admin.BrokerEvent(event="NAMESRV_STARTED")
    started.event_at.FromDatetime(START)
    assert merged(page("n1", event("SUSPECTED", 9), event("SUSPECTED", 3))) == [
        ("SUSPECTED", 3, ["n1"]),
        ("SUSPECTED", 9, ["n1"]),
    ]
    assert [nodes for _, _, nodes in merged(page("n1", started), page("n2", started))] == [["n1"], ["n2"]]


def test_before_the_end_of_a_page_that_was_cut_nothing_is_shown() -> None:
    cut = page("n1", event("EXPIRED", 900), event("REGISTERED", 800), is_cut=True)
    complete = page("n2", event("EXPIRED", 901), event("REGISTERED", 801), event("EXPIRED", 100))

    assert merged(cut, complete) == [("REGISTERED", 800, ["n1", "n2"]), ("EXPIRED", 900, ["n1", "n2"])]


def broker(state: str, *, node_state: str = "READY") -> admin.GetPastBrokerResponse:
    identity = broker_pb2.BrokerIdentity(cluster="c1", broker_name="a", addr="10.0.0.1:1")
    return admin.GetPastBrokerResponse(
        replicas=[admin.PastReplica(identity=identity, state=state)], node_state=node_state
    )


def test_name_servers_agree_if_all_that_know_the_moment_have_the_same_states() -> None:
    assert agree([broker("UP"), broker("UP")])
    assert not agree([broker("UP"), broker("GONE")])
    assert agree([broker("UP"), admin.GetPastBrokerResponse()])
    assert agree([])
