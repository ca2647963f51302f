"""One frame over all servers: rates, brokers by state, and unhealthy brokers."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.v1 import admin_service_pb2, broker_pb2
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import NameServerFailedError, RequestRejectedError
from pointsman_ctl.commands.top_command import MAX_UNHEALTHY, Frame, frame_parts, next_frame, to_frame_document
from pointsman_ctl.output import output_layout
from pointsman_ctl.servers.name_servers import NodeBrokers
from pointsman_ctl.servers.server_calls import NodeResponse

AT = datetime(2026, 1, 1, tzinfo=UTC)
NodeT = NodeResponse[NodeBrokers]


def status(name: str, state: str = "UP", *, penalty: float = 0.0, cluster: str = "c1") -> broker_pb2.BrokerStatus:
    return broker_pb2.BrokerStatus(
        identity=broker_pb2.BrokerIdentity(cluster=cluster, broker_name=name, addr="10.0.0.1:1"),
        state=broker_pb2.BrokerState.Value(f"BROKER_STATE_{state}"),
        silence=Duration(seconds=31),
        penalty=penalty,
    )


def node(addr: str, *brokers: broker_pb2.BrokerStatus, boot: int = 1, calls: int = 0) -> NodeT:
    info = admin_service_pb2.GetNodeInfoResponse(
        state=broker_pb2.NODE_STATE_READY,
        boot=boot,
        uptime=Duration(seconds=60),
        sizes={"topics": 3, "watchers": 2, "calls_total": calls},
        complaints=["history is not written"],
    )
    return NodeResponse(addr, NodeBrokers(addr, list(brokers), info), None)


def frames(first: NodeT, second: NodeT, seconds: float = 2.0) -> Frame:
    return next_frame(
        next_frame(None, [first], at=AT, monotonic_seconds=10.0), [second], at=AT, monotonic_seconds=10.0 + seconds
    )


def test_counters_of_a_node_are_shown_as_rates_per_second() -> None:
    assert next_frame(None, [node("a:1")], at=AT, monotonic_seconds=10.0).rates == {}
    assert frames(node("a:1", calls=100), node("a:1", calls=150)).rates == {"a:1": {"calls": 25.0}}


def test_a_node_that_restarted_or_did_not_answer_before_has_no_rate_yet() -> None:
    failed: NodeT = NodeResponse("a:1", None, NameServerFailedError("a:1", grpc.StatusCode.UNAVAILABLE, "gone"))

    assert frames(node("a:1", boot=1, calls=100), node("a:1", boot=2, calls=5)).rates == {}
    assert frames(failed, node("a:1")).rates == {}
    assert frames(node("a:1"), failed).rates == {}
    assert frames(node("a:1"), node("a:1"), seconds=0.0).rates == {}


def test_a_frame_shows_nodes_brokers_by_state_and_unhealthy_brokers(capsys: pytest.CaptureFixture[str]) -> None:
    failed: NodeT = NodeResponse("b:1", None, NameServerFailedError("b:1", grpc.StatusCode.DEADLINE_EXCEEDED, ""))
    bare = admin_service_pb2.GetNodeInfoResponse(state=broker_pb2.NODE_STATE_READY)
    without_sizes: NodeT = NodeResponse("c:1", NodeBrokers("c:1", [status("broker-z")], bare), None)
    absent = status("broker-b", "OUT")
    absent.reason, absent.planned = "PROBE", True
    one = node("a:1", status("broker-a"), absent, status("broker-c", penalty=3200), calls=20)
    before = next_frame(None, [node("a:1")], at=AT, monotonic_seconds=0.0)
    frame = next_frame(before, [one, failed, without_sizes], at=AT, monotonic_seconds=2.0)

    output_layout.show(frame_parts(frame))
    assert capsys.readouterr().out.splitlines() == [
        "2026-01-01 00:00:00.000 UTC",
        "NODE  STATE        UPTIME  BROKERS  TOPICS  WATCHERS",
        "a:1   READY         60.0s        3       3         2",
        "b:1   NO RESPONSE       -        -       -         -",
        "c:1   READY             -        1       -         -",
        "a:1 per second: calls 10.0",
        "a:1 PROBLEM: history is not written",
        "b:1 is not responding (no response in time)",
        "",
        "CLUSTER  NODE  UP  SUSPECT  PROVISIONAL  PROTECTED  OUT",
        "c1       a:1    2        0            0          0    1",
        "c1       c:1    1        0            0          0    0",
        "",
        "UNHEALTHY      NODE  STATE  REASON          LAST HEARTBEAT  PENALTY",
        "c1/broker-b/0  a:1   OUT    PROBE, planned           31.0s        0",
        "c1/broker-c/0  a:1   UP     -                        31.0s     3200",
    ]
    printed = json.loads(json.dumps(to_frame_document(frame)))
    assert printed["at"] == "2026-01-01T00:00:00.000Z"
    first, second, third = printed["nodes"]
    assert first["ratesPerSecond"] == {"calls": 10.0}
    assert first["brokersByState"] == {"UP": 2, "OUT": 1}
    assert [broker["brokerName"] for broker in first["unhealthy"]] == ["broker-b", "broker-c"]
    assert second["error"]["message"] == "b:1 is not responding (no response in time)"
    assert (third["nodeState"], third["sizes"]) == ("READY", {})


def test_one_restart_makes_no_broker_unhealthy_and_a_refusal_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = RequestRejectedError("b:1", grpc.StatusCode.NOT_FOUND, "cluster nope is not known", ErrorDetails())
    refused: NodeT = NodeResponse("b:1", None, refusal)
    one = node("a:1", status("broker-a", penalty=1000))
    output_layout.show(frame_parts(next_frame(None, [one, refused], at=AT, monotonic_seconds=0.0)))

    shown = capsys.readouterr().out
    assert "UNHEALTHY" not in shown
    assert "b:1   REJECTED" in shown
    assert "b:1 rejected the request: cluster nope is not known" in shown


def test_of_many_unhealthy_brokers_a_frame_names_some_and_counts_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    sick = [status(f"broker-{number:03}", "PROTECTED") for number in range(MAX_UNHEALTHY + 5)]
    output_layout.show(frame_parts(next_frame(None, [node("a:1", *sick)], at=AT, monotonic_seconds=0.0)))

    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "and 5 more: see `pointsmanctl brokers`"
    assert sum("PROTECTED  -" in line and "broker-" in line for line in lines) == MAX_UNHEALTHY
