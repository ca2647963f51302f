"""What ``pointsmanctl why`` prints: state, rule and evidence of each replica, then the timeline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2
from pointsman.wire.outage_timeline import timeline_of
from pointsman_ctl.commands.why_command import to_why_document, why_parts
from pointsman_ctl.output import output_layout
from pointsman_ctl.servers.name_servers import BrokerHistory
from pointsman_ctl.servers.server_calls import NodeResponse

WHO = broker_pb2.BrokerIdentity(cluster="c1", broker_name="broker-a", addr="10.0.0.1:10911")
NOW = datetime(2026, 1, 1, 0, 2, 0, 200_000, tzinfo=UTC)
FAILING = broker_pb2.BrokerHealth(
    status=broker_pb2.PROBE_STATUS_FAILING,
    detail="connect: refused\x1b",
    evidence=broker_pb2.PROBE_EVIDENCE_STRONG,
    ever_passed=True,
)


def status(state: str, reason: str = "", rule: str = "otherwise", **facts: Any) -> broker_pb2.BrokerStatus:
    return broker_pb2.BrokerStatus(
        identity=WHO,
        state=broker_pb2.BrokerState.Value(f"BROKER_STATE_{state}"),
        reason=reason,
        rule=rule,
        silence=Duration(seconds=3),
        heartbeat_interval=Duration(seconds=5),
        expiry=Duration(seconds=30),
        **facts,
    )


def event(
    at: int,
    name: str,
    reason: str = "",
    state: str = "",
    *,
    planned: bool = False,
    silent: int | None = None,
    **detail: Any,
) -> admin.BrokerEvent:
    facts = Struct()
    facts.update(detail)
    return admin.BrokerEvent(
        event_at=Timestamp(seconds=1_767_225_600 + at, nanos=123_000_000),
        event=name,
        reason=reason,
        state=state,
        planned=planned,
        identity=WHO,
        interval=None if silent is None else Duration(seconds=silent),
        detail=facts,
    )


def node(
    *brokers: broker_pb2.BrokerStatus, events: Sequence[admin.BrokerEvent] = (), guard: admin.GuardStatus | None = None
) -> NodeResponse[BrokerHistory]:
    guards = {guard.cluster: guard} if guard else {}
    return NodeResponse("ns1:9876", BrokerHistory("ns-1", brokers, guards, timeline_of(events)), None)


def shown(capsys: pytest.CaptureFixture[str], *nodes: NodeResponse[BrokerHistory], limit: int = 20) -> list[str]:
    output_layout.show(why_parts(nodes, limit=limit, now=NOW))
    return capsys.readouterr().out.splitlines()


def test_a_replica_that_is_out_is_shown_with_the_rule_and_what_it_read(capsys: pytest.CaptureFixture[str]) -> None:
    out = status(
        "OUT",
        "REFUSED",
        "the probe fails on strong evidence",
        health=FAILING,
        state_for=Duration(seconds=12),
        stream_open=True,
    )
    events = [event(0, "REGISTERED", state="UP"), event(8, "PROBE_FAILED", "REFUSED", "OUT")]

    assert shown(capsys, node(out, events=events))[:8] == [
        "node ns1:9876 (ns-1)",
        "c1/broker-a 0 at 10.0.0.1:10911: OUT for 12.0s",
        "    rule       the probe fails on strong evidence",
        "    reason     REFUSED",
        "    heartbeat  3.0s ago; sent every 5.0s, expires after 30.0s",
        "    stream     open",
        "    probe      failing, strong evidence, passed before: connect: refused\N{REPLACEMENT CHARACTER}",
        "    outage     for 112.1s, since 2026-01-01 00:00:08.123 (UTC), unplanned",
    ]


def test_a_protected_replica_is_shown_with_the_counts_of_the_guard(capsys: pytest.CaptureFixture[str]) -> None:
    kept = status("PROTECTED", "STREAM_BROKEN", "expired, but the guard protects it", in_maintenance=True)
    guard = admin.GuardStatus(
        cluster="c1",
        mode=admin.GUARD_MODE_AUTO,
        active=True,
        active_for=Duration(seconds=12),
        lost=3,
        up=1,
        baseline=4,
    )
    lines = shown(capsys, node(kept, guard=guard))
    assert lines[1:3] == [
        "c1/broker-a 0 at 10.0.0.1:10911: PROTECTED since unknown",
        "    rule       expired, but the guard protects it",
    ]
    assert lines[5:8] == [
        "    stream     broken",
        "    probe      none",
        "    guard      AUTO, active for 12.0s: 3 lost, 1 up, baseline 4",
    ]
    # A replica that is kept for a moment after the guard has ended.
    guard.active = False
    assert "    guard      AUTO, no longer active: 3 lost, 1 up, baseline 4" in shown(capsys, node(kept, guard=guard))
    assert not any("guard " in line for line in shown(capsys, node(status("UP"), guard=guard)))


def test_a_departed_replica_is_shown_with_its_outage(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        event(0, "REGISTERED", state="UP"),
        event(8, "PROBE_FAILED", "PROBE", "OUT"),
        event(60, "UNREGISTERED", "SHUTDOWN", "GONE", planned=True),
    ]
    assert shown(capsys, node(events=events))[1:4] == [
        "c1/broker-a 0 at 10.0.0.1:10911: GONE since 2026-01-01 00:01:00.123 (UTC)",
        "    reason     UNREGISTERED SHUTDOWN, planned",
        "    outage     for 112.1s, since 2026-01-01 00:00:08.123 (UTC), unplanned",
    ]


def test_an_absence_that_outlived_its_window_is_shown_with_both_times(capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        event(0, "REGISTERED", state="UP"),
        event(10, "EXPIRED", "SILENCE", "GONE", planned=True),
        event(40, "EXPIRED", "SILENCE", "GONE", outlived_window=True, absent_seconds=30.0),
    ]
    lines = shown(capsys, node(events=events))
    assert lines[1:5] == [
        "c1/broker-a 0 at 10.0.0.1:10911: GONE since 2026-01-01 00:00:10.123 (UTC)",
        "    reason     EXPIRED SILENCE",
        "    window     its maintenance window ended at 2026-01-01 00:00:40.123 (UTC)",
        "    outage     for 110.1s, since 2026-01-01 00:00:10.123 (UTC), unplanned after the first 30.0s",
    ]


def test_silence_on_an_open_stream_is_explained_while_it_lasts_and_afterwards(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agent = "stream open without heartbeats: its agent hangs, or its machine is frozen or cut off; check the agent"
    broker = "connection open without heartbeats: the broker hangs, or its machine is frozen or cut off"
    silent = status("SUSPECT", "SILENCE", stream_open=True)
    assert f"    stream     {agent}" in shown(capsys, node(silent))
    assert "    stream     open" in shown(capsys, node(status("UP", stream_open=True)))
    silent.self_registered = True
    assert f"    stream     {broker}" in shown(capsys, node(silent))
    gone = [event(0, "REGISTERED", state="UP"), event(120, "EXPIRED", "SILENCE", "GONE", silent=120, stream="open")]
    lines = shown(capsys, node(events=gone))
    assert f"    stream     {agent}" in lines
    assert lines[-1].startswith("    c1, 10.0.0.1:10911: expired: heartbeats are missing; left the routes;")
    assert lines[-1].endswith(agent)


def test_an_outage_whose_beginning_is_not_remembered_lasts_at_least_as_long_and_none_is_negative(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys, node(events=[event(0, "CHECKPOINT", "", "GONE")]))
    assert "    outage     for at least 2m 00s, since before 2026-01-01 00:00:00.123 (UTC), unplanned" in lines
    lines = shown(capsys, node(events=[event(0, "REGISTERED", state="UP"), event(500, "EXPIRED", "SILENCE", "GONE")]))
    assert "    outage     for 0ms, since 2026-01-01 00:08:20.123 (UTC), unplanned" in lines


@pytest.mark.parametrize("columns", ["80", ""])
def test_the_timeline_shows_events_reasons_and_the_duration_of_an_outage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    events = [
        event(0, "REGISTERED", state="UP", topics=4),
        event(1, "GUARD_ON", "SHARE", mode="AUTO"),
        event(121, "UNREGISTERED", "REMOVED_FROM_CONFIG", "GONE", planned=True, silent=121),
        event(133, "REGISTERED", state="UP"),
    ]
    events[1].identity.addr = ""
    lines = shown(capsys, node(status("UP"), events=events), node())

    assert all(len(line) <= 80 for line in lines) or not columns
    assert lines[6:10] == [
        "    outage     12.0s, planned; back at 2026-01-01 00:02:13.123 (UTC)",
        "",
        "TIME (UTC)               EVENT         REASON               ID  STATE",
        "2026-01-01 00:00:00.123  REGISTERED    -                    0   UP",
    ]
    assert lines[10:12] == [
        "    c1, 10.0.0.1:10911: registered; entered the routes; topics 4",
        "2026-01-01 00:00:01.123  GUARD_ON      SHARE                -   -",
    ]
    # At 80 columns a long sentence continues in the next line, still indented.
    sentences = " ".join(" ".join(lines).split())
    for sentence in (
        " c1: the guard of its cluster is on: too many brokers were lost at the same time; mode AUTO ",
        "unregistered: removed from the configuration of its agent; left the routes, planned;",
        "; last heartbeat 2m 01s before ",
        "registered; back in the routes after 12.0s, planned",
    ):
        assert sentence in sentences
    assert lines[-3:] == ["no replica is registered here", "", "no events here"]


def test_the_limit_applies_to_shown_events_and_not_to_the_measurement_of_outages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = [
        event(0, "REGISTERED", state="UP"),
        event(10, "EXPIRED", "SILENCE", "GONE"),
        event(22, "REGISTERED", state="UP"),
    ]
    lines = shown(capsys, node(events=events), limit=1)

    assert sum("REGISTERED" in line for line in lines) == 1
    assert lines[-1].endswith("back in the routes after 12.0s")
    (printed,) = json.loads(json.dumps(to_why_document("broker-a", [node(events=events)], limit=1)))["nodes"]
    assert printed["outages"] == [
        {
            "cluster": "c1",
            "brokerName": "broker-a",
            "brokerId": 0,
            "beganAt": "2026-01-01T00:00:10.123Z",
            "beginKnown": True,
            "endedAt": "2026-01-01T00:00:22.123Z",
            "seconds": 12.0,
            "planned": False,
            "plannedSeconds": 0.0,
            "newProcess": None,
        }
    ]
    assert [event["eventAt"] for event in printed["events"]] == ["2026-01-01T00:00:22.123Z"]


def test_events_have_the_state_after_them_and_integers_in_json() -> None:
    events = [event(0, "REGISTERED", state="UP", topics=4), event(1, "EXPIRED", state="GONE", planned=True, silent=121)]
    printed = json.loads(json.dumps(to_why_document("broker-a", [node(events=events)], limit=9)))
    first, second = printed["nodes"][0]["events"]

    assert json.dumps(first["detail"]) == '{"topics": 4}'
    assert (first["intervalSeconds"], first["state"], first["planned"]) == (None, "UP", False)
    assert (second["intervalSeconds"], second["state"], second["planned"]) == (121.0, "GONE", True)
