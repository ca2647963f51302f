"""The checks of ``pointsmanctl doctor NAME``: of one topic, broker name or consumer group."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import broker_pb2, route_service_pb2
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.outage_timeline import timeline_of
from pointsman_client import NameServerFailedError
from pointsman_ctl.commands.name_checks import (
    broker_notes,
    group_name_findings,
    similar_names,
    topic_findings,
    view_findings,
)
from pointsman_ctl.output.consumer_group_view import GroupView, group_view
from pointsman_ctl.output.doctor_view import DoctorFinding
from pointsman_ctl.output.group_queue_view import group_queues_view
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentQueues
from pointsman_ctl.servers.found_agents import Agent
from pointsman_ctl.servers.name_servers import BrokerHistory, NodeBrokers
from pointsman_ctl.servers.node_answers import TOPIC, NodeAnswers

READY, WARMING = broker_pb2.NODE_STATE_READY, broker_pb2.NODE_STATE_WARMING
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
INFO = admin.GetNodeInfoResponse(state=READY)


def route(*brokers: tuple[str, int, int], absent: Iterable[str] = ()) -> route_service_pb2.TopicRoute:
    """A route; each broker is its name, permission and the id of its replica."""
    return route_service_pb2.TopicRoute(
        topic="orders",
        queue_datas=[
            route_service_pb2.QueueData(
                cluster="c1", broker_name=name, read_queue_nums=4, write_queue_nums=4, perm=perm
            )
            for name, perm, _ in brokers
        ],
        broker_datas=[
            broker_pb2.BrokerData(
                cluster="c1", broker_name=name, replicas=[broker_pb2.BrokerReplica(broker_id=number, addr=f"{name}:1")]
            )
            for name, _, number in brokers
        ],
        absent_brokers=[
            route_service_pb2.AbsentBroker(
                identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name=name), reason="SILENCE"
            )
            for name in absent
        ],
    )


A, B = ("a", 6, 0), ("b", 6, 0)


def of_topic(*routes: route_service_pb2.TopicRoute | None) -> list[DoctorFinding]:
    found = [(f"ns{number}:1", NodeAnswers(INFO, route=each)) for number, each in enumerate(routes, 1)]
    return list(topic_findings("orders", found, now=NOW))


def short(findings: Iterable[DoctorFinding]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.severity, each.kind, each.servers) for each in findings]


def test_a_topic_with_a_master_everywhere_has_no_findings() -> None:
    assert of_topic(route(A, B), route(A, B)) == []


def test_a_topic_without_a_broker_names_those_that_had_it() -> None:
    (found,) = of_topic(route(absent=["a", "b", "c", "d"]))
    assert (found.severity, found.kind, found.subject) == ("ALARM", "NO_BROKER", "topic orders")
    assert found.text.endswith("; not routed: c1/a/0 (SILENCE), c1/b/0 (SILENCE), c1/c/0 (SILENCE) and 1 more")


def test_a_topic_is_diagnosed_by_the_rule_of_the_pages() -> None:
    assert short(of_topic(route(("a", 6, 1)))) == [
        ("ALARM", "NOT_WRITABLE", ("ns1:1",)),
        ("WARNING", "NO_MASTER", ("ns1:1",)),
    ]
    assert short(of_topic(route(("a", 2, 0)))) == [("ALARM", "NOT_READABLE", ("ns1:1",))]


def test_an_order_configuration_beyond_the_queues_of_a_broker_is_found_there() -> None:
    found = route(A, B)
    found.order_topic_conf = "a:4;b:6;gone:9;"
    (one,) = of_topic(found)
    assert (one.severity, one.kind, one.subject) == ("WARNING", "ORDER_SURPLUS", "topic orders on b")
    assert one.text.startswith("its order configuration has 6 queues on b, which has 4: ")
    found.order_topic_conf = "a:4;b:4"
    assert of_topic(found) == []


def test_a_broker_name_that_only_another_name_server_has_is_down_there() -> None:
    found = of_topic(route(A, B), route(A))
    assert short(found) == [
        ("WARNING", "ONE_LEFT", ("ns2:1",)),
        ("WARNING", "BROKERS_DOWN", ("ns2:1",)),
        ("WARNING", "ROUTES_DIFFER", ()),
    ]
    assert found[0].remedy.startswith("`pointsmanctl why a`")
    assert found[2].text.startswith("ns2:1 differs from ns1:1: - queues of c1/b: ")


def test_the_last_broker_name_of_a_topic_is_at_risk_while_others_of_its_cluster_are_not_routed() -> None:
    def status(name: str, state: str, broker_id: int = 0, cluster: str = "c1") -> broker_pb2.BrokerStatus:
        return broker_pb2.BrokerStatus(
            identity=broker_pb2.BrokerIdentity(cluster=cluster, broker_name=name, broker_id=broker_id),
            state=broker_pb2.BrokerState.Value(f"BROKER_STATE_{state}"),
            state_for=Duration(seconds=3_540),
        )

    def of(*brokers: broker_pb2.BrokerStatus, departed: Iterable[admin.FlapScore] = ()) -> list[DoctorFinding]:
        answers = NodeAnswers(INFO, NodeBrokers("ns", brokers, INFO, list(departed)), route=route(A))
        return list(topic_findings("orders", [("ns1:1", answers)], now=NOW))

    up, out = status("a", "UP"), status("b", "OUT")
    assert of(up) == []
    assert of(up, out, status("b", "UP", 1)) == []
    assert of(up, status("z", "OUT", cluster="c2")) == []
    (found,) = of(up, out)
    assert (found.kind, found.servers) == ("ONE_LEFT", ("ns1:1",))
    assert found.text == "one broker name is in the routes: c1/a. Not routed, and may have it: c1/b"
    then = "`pointsmanctl route orders --at 2026-01-01T11:00:00Z`"
    assert found.remedy == f"{then} shows its brokers before; `pointsmanctl why b`"
    score = admin.FlapScore(cluster="c1", broker_name="d", last_event_ago=Duration(seconds=7_140))
    (found,) = of(up, out, departed=[score])
    assert found.text.endswith("may have it: c1/b, c1/d")
    assert "T10:00:00Z" in found.remedy


def test_a_topic_that_a_ready_name_server_does_not_know_is_an_alarm_there() -> None:
    late = NameServerFailedError("ns3:1", grpc.StatusCode.DEADLINE_EXCEEDED, "late")
    found = [
        ("ns1:1", NodeAnswers(INFO, route=route(A))),
        ("ns2:1", NodeAnswers(INFO)),
        ("ns3:1", NodeAnswers(INFO, failures={TOPIC: late})),
        ("ns4:1", NodeAnswers(admin.GetNodeInfoResponse(state=WARMING))),
    ]
    (one,) = topic_findings("orders", found, now=NOW)
    assert (one.severity, one.kind, one.text) == ("ALARM", "TOPIC_MISSING", "it is unknown at ns2:1, but not at ns1:1")


def test_a_wiped_permission_is_restored_by_a_command() -> None:
    status = broker_pb2.BrokerStatus(
        identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name="a"), write_wiped=True
    )
    answers = NodeAnswers(INFO, NodeBrokers("ns", [status], INFO), route=route(A, B))
    not_wiped = NodeAnswers(INFO, route=route(A, B))
    (found,) = topic_findings("orders", [("ns1:1", answers), ("ns2:1", not_wiped)], now=NOW)
    assert (found.kind, found.subject, found.servers) == ("WIPED", "topic orders on c1/a", ("ns1:1",))
    assert found.remedy == "`pointsmanctl add-write-perm a --cluster c1` restores it"


# A broker name


def history(state: str, *events: admin.BrokerEvent) -> NodeAnswers:
    brokers = [
        broker_pb2.BrokerStatus(
            identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name="a", addr="a:1"),
            state=broker_pb2.BrokerState.Value(f"BROKER_STATE_{state}"),
            rule="the_rule",
        )
    ]
    return NodeAnswers(
        INFO, history=BrokerHistory("ns", brokers if state != "UNSPECIFIED" else [], {}, timeline_of(events))
    )


def test_states_that_differ_between_name_servers_are_a_finding() -> None:
    same = [("ns1:1", history("UP")), ("ns2:1", history("UP"))]
    assert list(view_findings(same)) == []
    (found,) = view_findings([*same, ("ns3:1", history("OUT"))])
    assert (found.kind, found.subject) == ("STATES_DIFFER", "c1/a/0")
    assert found.text == "UP at ns1:1, UP at ns2:1, OUT at ns3:1"


def test_the_state_at_each_name_server_is_noted_with_its_rule() -> None:
    gone = admin.BrokerEvent(
        event_at=Timestamp(seconds=1_767_225_600),
        event="EXPIRED",
        reason="SILENCE",
        state="GONE",
        identity=broker_pb2.BrokerIdentity(cluster="c1", broker_name="a", addr="a:1"),
        detail=Struct(),
    )
    up, lost, _ = [*broker_notes([("ns1:1", history("UP")), ("ns2:1", history("UNSPECIFIED", gone))]), ""]
    assert up == "c1/a/0 at ns1:1: UP since unknown; rule the_rule; stream not open; probe none"
    assert lost == "c1/a/0 at ns2:1: GONE since 2026-01-01 00:00:00.000 (UTC); reason SILENCE"


# A group


def view_of(*queues: wire.GroupQueue, members: Iterable[str] = ()) -> GroupView:
    agent = Agent("a:1", ("c1/a/0",))
    seen = group_queues_view([(agent, AgentQueues(wire.ListGroupQueuesResponse(queues=queues)))])
    group = wire.GetGroupResponse(
        membership=wire.GroupMembership(group="g", state=wire.GROUP_STATE_READY),
        members=[wire.GroupMember(client_id=each, is_conflicting=True) for each in members],
    )
    return group_view([(agent, AgentGroup(group if members else None))], seen, now=datetime(2026, 1, 1, tzinfo=UTC))


def test_stuck_queues_come_before_those_that_fall_behind_and_before_settings() -> None:
    def queue(number: int, standing: wire.QueueStanding.ValueType) -> wire.GroupQueue:
        return wire.GroupQueue(
            topic="orders", client_id="x", reading=wire.QueueReading(queue_id=number), standing=standing
        )

    behind, stuck = queue(1, wire.QUEUE_STANDING_BEHIND), queue(2, wire.QUEUE_STANDING_STUCK_OFFSET)
    found = list(group_name_findings("g", view_of(behind, stuck, members=["x"])))
    assert [(each.severity, each.kind) for each in found] == [
        ("ALARM", "STUCK"),
        ("WARNING", "BEHIND"),
        ("ALARM", "CONFLICT"),
    ]
    assert found[0].remedy == "`pointsmanctl group g --queues`; deploy/runbook.md#pointsmanqueuestuck"


def test_unread_messages_of_a_group_without_members_are_an_alarm() -> None:
    unread = wire.GroupQueue(topic="orders", committed=3, max_offset=10)
    (found,) = group_name_findings("g", view_of(unread))
    assert (found.severity, found.kind, found.text) == (
        "ALARM",
        "NO_MEMBERS",
        "it has no members, and 7 unread messages",
    )
    assert list(group_name_findings("g", view_of())) == []


# An unknown name


def test_similar_names_have_their_kind() -> None:
    known = {"topic": ["orders", "bills"], "group": ["orders", "border"], "broker": ["broker-a"]}
    assert similar_names("ordres", known) == ["topic orders", "group orders", "group border"]
    assert similar_names("zzz", known) == []
