"""Departures from the routes: across runs of a name server, and at the end of its rows."""

from __future__ import annotations

from datetime import datetime

import pytest

from pointsman_report.questions.route_events import Departure, departures
from tests.spark.histories import NameServer, broker, moment
from tests.spark.topic_history_rows import story_of

A = broker("a")


def departures_of(*servers: NameServer, at: datetime) -> tuple[Departure, ...]:
    rows = [row for server in servers for row in server.rows]
    return departures(story_of(rows, "orders", at=at), since=moment(0), at=at)


def server_that_lost_a(node: str = "ns1:9876", *, at: float = 1_000) -> NameServer:
    server = NameServer(node=node).start(moment(0))
    server.say("REGISTERED", moment(5), A)
    server.say("EXPIRED", moment(at), A, reason="SILENCE", interval_ms=121_000)
    return server


def restarted(node: str = "ns1:9876") -> NameServer:
    """The next run of a name server, a long one."""
    return NameServer(node=node, boot_id="b2").start(moment(1_210))


def test_a_broker_that_registers_in_a_later_run_of_the_name_server_is_back() -> None:
    before, after = server_that_lost_a(), restarted()
    before.stop(moment(1_200))
    after.say("REGISTERED", moment(1_300), A)
    after.say("NAMESRV_ALIVE", moment(5_000))

    (found,) = departures_of(before, after, at=moment(4_950))

    assert found.back_at == moment(1_300)
    assert [found.lasted_at(moment(at)) for at in (1_299, 4_950)] == [True, False]


def test_a_broker_in_the_snapshot_of_a_later_run_is_back_unless_its_probe_failed() -> None:
    for state, back_at in (("PROVISIONAL", moment(1_210)), ("OUT", None)):
        before, after = server_that_lost_a(), restarted()
        after.say("CHECKPOINT", moment(1_210), A, reason="START", state=state)
        after.say("NAMESRV_ALIVE", moment(5_000))

        (found,) = departures_of(before, after, at=moment(4_950))

        assert found.back_at == back_at, state


def test_a_broker_that_never_returned_is_out_in_a_later_run_too() -> None:
    before, after = server_that_lost_a(), restarted()
    before.stop(moment(1_200))
    after.say("NAMESRV_ALIVE", moment(5_000))

    (found,) = departures_of(before, after, at=moment(4_950))

    assert found.lasted_at(moment(4_950))


def test_a_name_server_that_has_ended_does_not_keep_brokers_missing() -> None:
    gone, other = server_that_lost_a(), server_that_lost_a("ns2:9876", at=1_001)
    gone.stop(moment(1_200))
    other.say("REGISTERED", moment(1_300), A)
    other.say("NAMESRV_ALIVE", moment(5_000))

    (found,) = departures_of(gone, other, at=moment(4_950))

    assert [sighting.back_at for sighting in found.observations] == [None, moment(1_300)]
    assert not found.lasted_at(moment(4_950))


@pytest.mark.parametrize(
    ("alive_at", "at"),
    [
        pytest.param((), 1_100, id="no-row-since"),
        pytest.param((1_060,), 5_000, id="rows-that-are-not-collected"),
    ],
)
def test_an_outage_that_is_the_newest_of_all_rows_is_one_to_both_name_servers(
    alive_at: tuple[float, ...], at: float
) -> None:
    one, two = server_that_lost_a(), server_that_lost_a("ns2:9876", at=1_002)
    for server in (one, two):
        for second in alive_at:
            server.say("NAMESRV_ALIVE", moment(second))

    (found,) = departures_of(one, two, at=moment(at))

    assert [sighting.node for sighting in found.observations] == ["ns1:9876", "ns2:9876"]
