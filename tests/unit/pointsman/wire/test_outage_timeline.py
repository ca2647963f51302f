"""Outages as a timeline measures them: from the first event out of the routes to the first that is back in them."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.operator_texts import change_text
from pointsman.wire.outage_timeline import Timeline, timeline_of


def event(
    at: int, name: str, state: str = "", *, planned: bool = False, process: str = "p1", broker_id: int = 0
) -> admin.BrokerEvent:
    return admin.BrokerEvent(
        event_at=Timestamp(seconds=1_767_225_600 + at),
        event=name,
        identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name="broker-a", broker_id=broker_id),
        incarnation=process,
        state=state,
        planned=planned,
    )


REGISTERED = event(0, "REGISTERED", "UP")


def timeline(*events: admin.BrokerEvent) -> tuple[Timeline, list[str]]:
    found = timeline_of(events)
    return found, [change_text(step) for step in found.events]


def test_a_restarted_name_server_knows_from_its_snapshot_when_an_outage_began() -> None:
    found = event(3_600, "CHECKPOINT", "GONE")
    found.state_for.FromSeconds(3_000)
    (outage,) = timeline(found)[0].outages

    assert (outage.is_begin_known, outage.began_at.minute) == (True, 10)


def test_an_outage_ends_with_its_length_and_whether_the_process_is_a_new_one() -> None:
    _, changes = timeline(
        REGISTERED,
        event(10, "EXPIRED", "GONE"),
        event(22, "REGISTERED", "UP", process="p2"),
        event(30, "PROBE_FAILED", "OUT", process="p2"),
        event(35, "RECOVERED", "UP", process="p2"),
    )
    assert changes == [
        "entered the routes",
        "left the routes",
        "back in the routes after 12.0s (new process)",
        "left the routes",
        "back in the routes after 5.0s (same process)",
    ]


def test_a_failing_broker_that_departs_and_registers_while_it_still_fails_has_one_outage() -> None:
    found, changes = timeline(
        REGISTERED,
        event(10, "PROBE_FAILED", "OUT"),
        event(20, "EXPIRED", "GONE"),
        event(30, "REGISTERED", "OUT"),
        event(40, "RECOVERED", "PROTECTED"),
    )
    assert changes[1:] == [
        "left the routes",
        "still not in the routes",
        "still not in the routes",
        "back in the routes after 30.0s (same process)",
    ]
    assert [outage.seconds for outage in found.outages] == [30.0]


def test_states_that_are_routed_are_no_outage() -> None:
    found, changes = timeline(
        REGISTERED, event(1, "SUSPECTED", "SUSPECT"), event(2, "PROTECTED", "PROTECTED"), event(3, "RECOVERED", "UP")
    )
    assert (found.outages, changes[1:]) == ([], ["still in the routes", "still in the routes", ""])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([event(10, "UNREGISTERED", "GONE", planned=True)], "30.0s (same process), planned"),
        (
            [event(10, "PROBE_FAILED", "OUT", planned=True), event(30, "PROBE_FAILED", "OUT")],
            "30.0s (same process), 20.0s of it planned",
        ),
        (
            [event(10, "PROBE_FAILED", "OUT"), event(30, "UNREGISTERED", "GONE", planned=True)],
            "30.0s (same process)",
        ),
        ([event(10, "EXPIRED", "GONE")], "30.0s (same process)"),
    ],
)
def test_the_planned_part_of_an_outage_is_named(events: list[admin.BrokerEvent], words: str) -> None:
    _, changes = timeline(REGISTERED, *events, event(40, "REREGISTERED", "UP"))
    assert changes[-1] == f"back in the routes after {words}"


def test_an_outage_whose_beginning_is_not_remembered_is_at_least_as_long() -> None:
    _, restarted = timeline(event(0, "CHECKPOINT", "OUT"), event(12, "REREGISTERED", "UP", process=""))
    assert restarted == ["not in the routes", "back in the routes after at least 12.0s"]


def test_a_first_registration_with_a_failing_probe_enters_the_routes_when_it_passes() -> None:
    _, changes = timeline(event(0, "REGISTERED", "OUT"), event(12, "RECOVERED", "UP", process=""))
    assert changes == ["not in the routes", "entered the routes after 12.0s"]


def test_an_outage_is_of_one_replica_and_lasts_until_that_one_is_back() -> None:
    found, changes = timeline(
        REGISTERED,
        event(0, "REGISTERED", "UP", broker_id=1),
        event(10, "EXPIRED", "GONE"),
        event(11, "GUARD_ON"),
        event(12, "RECOVERED", "UP", broker_id=1),
    )
    assert changes[2:] == ["left the routes", "", ""]
    (outage,) = found.outages
    assert (outage.seconds, found.outage_of(("c1", "broker-a", 0))) == (None, outage)
    assert found.outage_of(("c1", "broker-a", 1)) is None


def test_a_broker_that_shuts_down_while_out_has_left_unplanned() -> None:
    position = ("c1", "broker-a", 0)
    stopped, failed = event(20, "UNREGISTERED", "GONE", planned=True), event(10, "PROBE_FAILED", "OUT")

    assert timeline_of([REGISTERED, failed, stopped]).has_departed_unplanned(position)
    assert not timeline_of([REGISTERED, stopped]).has_departed_unplanned(position)
    assert not timeline_of([REGISTERED, failed]).has_departed_unplanned(position)
    assert not timeline_of([]).has_departed_unplanned(position)


def test_a_clock_that_was_set_back_makes_no_outage_negative() -> None:
    found, _ = timeline(REGISTERED, event(10, "EXPIRED", "GONE", planned=True), event(5, "REGISTERED", "UP"))
    assert [(outage.seconds, outage.planned_seconds) for outage in found.outages] == [(0.0, 0.0)]
