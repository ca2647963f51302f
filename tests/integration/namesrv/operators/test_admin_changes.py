"""AdminService, changes: what operators change on a running server, and what clients see of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from grpc import StatusCode

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1.broker_pb2 import NODE_STATE_DRAINING, NODE_STATE_READY
from pointsman.v1.registration_service_pb2 import BEAT_STATUS_UNKNOWN_BROKER, HeartbeatRequest
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest, ListTopicsRequest, TopicRoute
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer
from tests.kit.refusal import refusal_of

A_DAY, A_WEEK = 86_400, 7 * 86_400


async def route(peer: Peer, topic: str = "orders") -> TopicRoute:
    return (await peer.route.GetTopicRoute(GetTopicRouteRequest(topic=topic))).route


async def perms(peer: Peer) -> dict[str, int]:
    return {queues.broker_name: queues.perm for queues in (await route(peer)).queue_datas}


async def register(peer: Peer, name: str = "a", **facts: Any) -> int:
    who = wire.identity(name, addr=f"{name}:10911")
    return await peer.register(wire.topic("orders", perm=7), who=who, **facts)


async def operator_events(peer: Peer, name: str = "a") -> list[tuple[str, str, str]]:
    """Event, reason and operator of each recent event that names an operator."""
    kept = await peer.admin.ListBrokerEvents(admin.ListBrokerEventsRequest(cluster="c1", broker_name=name))
    return [(e.event, e.reason, str(e.detail["by"])) for e in kept.events if "by" in e.detail]


# --- write permission -------------------------------------------------------------------------------------------


async def test_a_wiped_broker_keeps_its_other_bits_until_they_are_added_again(peer: Peer) -> None:
    await register(peer)
    await register(peer, "b")
    wipe = admin.SetWritePermRequest(cluster="c1", broker_name="a", writable=False, by="ann")
    done = await peer.admin.SetWritePerm(wipe)
    assert (done.topic_count, done.changed, await perms(peer)) == (1, True, {"a": 5, "b": 7})
    assert not (await peer.admin.SetWritePerm(wipe)).changed
    listed = await peer.admin.ListBrokers(admin.ListBrokersRequest())
    assert [broker.write_wiped for broker in listed.brokers] == [True, False]
    await peer.admin.SetWritePerm(admin.SetWritePermRequest(cluster="c1", broker_name="a", writable=True, by="bob"))
    assert await perms(peer) == {"a": 7, "b": 7}
    assert await operator_events(peer) == [("PERM_CHANGED", "ADMIN", "ann"), ("PERM_CHANGED", "ADMIN", "bob")]


# --- topics -----------------------------------------------------------------------------------------------------


async def test_a_topic_that_brokers_have_is_deleted_only_by_force_and_comes_back_with_another_version(
    peer: Peer,
) -> None:
    await register(peer)
    refused = await refusal_of(peer.admin.DeleteTopic(admin.DeleteTopicRequest(topic="orders")))
    assert (refused.status, refused.details.code) == (StatusCode.FAILED_PRECONDITION, "TOPIC_HELD")
    assert refused.details.facts["brokers"] == "c1/a"
    assert "c1/a" in refused.message
    done = await peer.admin.DeleteTopic(admin.DeleteTopicRequest(topic="orders", force=True, by="ann"))
    assert done.hidden_on == ["c1/a"]
    gone = await refusal_of(peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders")))
    assert gone.status is StatusCode.NOT_FOUND
    await register(peer, version=(0, 0, 2))
    assert (await peer.route.ListTopics(ListTopicsRequest())).topics == ["orders"]


# --- KV configuration -------------------------------------------------------------------------------------------


async def test_an_order_topic_is_in_its_route_and_in_the_response_to_its_brokers(peer: Peer) -> None:
    await register(peer)
    before = await route(peer)
    put = admin.PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value="a:4", by="ann")
    assert (await peer.admin.PutKv(put)).changed
    assert not (await peer.admin.PutKv(put)).changed
    after = await route(peer)
    assert (before.order_topic_conf, after.order_topic_conf) == ("", "a:4")
    assert after.revision.counter > before.revision.counter
    assert after.revision.digest != before.revision.digest
    listed = await peer.admin.ListKv(admin.ListKvRequest())
    assert [(e.namespace, e.key, e.value) for e in listed.entries] == [("ORDER_TOPIC_CONFIG", "orders", "a:4")]
    assert not (await peer.admin.ListKv(admin.ListKvRequest(namespace="other"))).entries
    await peer.admin.DeleteKv(admin.DeleteKvRequest(namespace="ORDER_TOPIC_CONFIG", key="orders"))
    assert (await route(peer)).revision.digest == before.revision.digest


# --- guard and maintenance --------------------------------------------------------------------------------------


async def test_a_guard_in_mode_hold_keeps_a_silent_broker_until_the_mode_ends(peer: Peer, clock: ManualClock) -> None:
    await register(peer)
    hold = admin.SetGuardRequest(cluster="c1", mode=admin.GUARD_MODE_HOLD, duration=Duration(seconds=300), by="ann")
    guard = (await peer.admin.SetGuard(hold)).guard
    assert (guard.cluster, guard.mode, guard.active) == ("c1", admin.GUARD_MODE_HOLD, True)
    assert guard.mode_remaining.seconds == 300
    await clock.advance(200)
    (broker,) = (await peer.admin.ListBrokers(admin.ListBrokersRequest())).brokers
    assert broker.reason == "SILENCE"
    (shown,) = (await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())).guards
    assert (shown.active_for.seconds, shown.mode_remaining.seconds, shown.lost) == (200, 100, 1)
    assert shown.reason.startswith("set to HOLD")
    await clock.advance(300)
    assert not (await peer.admin.ListBrokers(admin.ListBrokersRequest())).brokers
    assert ("GUARD_ON", "ADMIN", "ann") in await operator_events(peer)


async def test_a_broker_that_expires_in_its_window_is_planned(peer: Peer, clock: ManualClock) -> None:
    await register(peer)
    window = admin.SetMaintenanceRequest(
        cluster="c1", broker_name="a", duration=Duration(seconds=600), note="new disk", by="ann"
    )
    assert (await peer.admin.SetMaintenance(window)).changed
    await clock.advance(50)
    (listed,) = (await peer.admin.ListMaintenance(admin.ListMaintenanceRequest())).windows
    assert (listed.cluster, listed.broker_name, listed.note, listed.by) == ("c1", "a", "new disk", "ann")
    assert listed.remaining.seconds == 550
    (broker,) = (await peer.admin.ListBrokers(admin.ListBrokersRequest())).brokers
    assert broker.in_maintenance
    await clock.advance(100)
    kept = await peer.admin.ListBrokerEvents(admin.ListBrokerEventsRequest(broker_name="a"))
    last = kept.events[-1]
    assert (last.event, last.reason, last.state, last.planned) == ("EXPIRED", "SILENCE", "GONE", True)
    assert not (await peer.admin.ListFlapping(admin.ListFlappingRequest())).scores
    await clock.advance(600)
    assert not (await peer.admin.ListMaintenance(admin.ListMaintenanceRequest())).windows


# --- drain and eviction -----------------------------------------------------------------------------------------


async def test_a_drained_node_refuses_routes_and_still_accepts_brokers(server: NameServerApp, peer: Peer) -> None:
    await register(peer)
    assert (await peer.admin.SetDrain(admin.SetDrainRequest(draining=True, by="ann"))).state == NODE_STATE_DRAINING
    refused = await refusal_of(peer.route.GetTopicRoute(GetTopicRouteRequest(topic="orders")))
    assert refused.status is StatusCode.UNAVAILABLE
    await register(peer, "b")
    assert len(server.core.replicas()) == 2
    info = await peer.admin.GetNodeInfo(admin.GetNodeInfoRequest())
    assert info.state == NODE_STATE_DRAINING
    assert (await peer.admin.SetDrain(admin.SetDrainRequest(draining=False))).state == NODE_STATE_READY
    assert sorted(await perms(peer)) == ["a", "b"]


async def test_an_evicted_broker_is_removed_and_its_next_heartbeat_requests_a_registration(peer: Peer) -> None:
    generation = await register(peer)
    gone = await peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster="c1", broker_name="a", by="ann"))
    assert gone.identity.addr == "a:10911"
    beat = wire.beat(generation, who=gone.identity)
    assert (await peer.registration.Heartbeat(HeartbeatRequest(beat=beat))).answer.status == BEAT_STATUS_UNKNOWN_BROKER
    assert await operator_events(peer) == [("UNREGISTERED", "ADMIN", "ann")]
    refused = await refusal_of(
        peer.admin.EvictBroker(admin.EvictBrokerRequest(cluster="c1", broker_name="a", broker_id=1))
    )
    assert (refused.status, refused.details.code) == (StatusCode.NOT_FOUND, "BROKER_UNKNOWN")


# --- bad input --------------------------------------------------------------------------------------------------

LONG_BY = "x" * 129


@pytest.mark.parametrize(
    ("method", "request_", "fields"),
    [
        ("SetWritePerm", admin.SetWritePermRequest(by=LONG_BY), ["cluster", "broker_name", "by"]),
        ("SetWritePerm", admin.SetWritePermRequest(cluster="c1", broker_name="a b"), ["broker_name"]),
        ("DeleteTopic", admin.DeleteTopicRequest(cluster="a b", by="\n"), ["topic", "cluster", "by"]),
        ("PutKv", admin.PutKvRequest(by=LONG_BY), ["namespace", "key", "by"]),
        ("PutKv", admin.PutKvRequest(namespace="n", key="k", value="x" * 4_097), ["value"]),
        ("PutKv", admin.PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key="t", value="a:b"), ["value"]),
        ("DeleteKv", admin.DeleteKvRequest(), ["namespace", "key"]),
        ("ListKv", admin.ListKvRequest(namespace="a b"), ["namespace"]),
        ("SetGuard", admin.SetGuardRequest(), ["cluster", "mode"]),
        ("SetGuard", admin.SetGuardRequest(cluster="c1", mode=9), ["mode"]),  # type: ignore[arg-type]
        (
            "SetGuard",
            admin.SetGuardRequest(cluster="c1", mode=admin.GUARD_MODE_HOLD, duration=Duration()),
            ["duration"],
        ),
        (
            "SetGuard",
            admin.SetGuardRequest(
                cluster="c1", mode=admin.GUARD_MODE_HOLD, duration=Duration(seconds=A_DAY, nanos=1_000)
            ),
            ["duration"],
        ),
        ("SetMaintenance", admin.SetMaintenanceRequest(note="x" * 1_025), ["cluster", "note"]),
        ("SetMaintenance", admin.SetMaintenanceRequest(cluster="c1", duration=Duration(seconds=-1)), ["duration"]),
        (
            "SetMaintenance",
            admin.SetMaintenanceRequest(cluster="c1", broker_name="!", duration=Duration(seconds=A_WEEK + 1)),
            ["broker_name", "duration"],
        ),
        ("SetMaintenance", admin.SetMaintenanceRequest(cluster="c1", duration=Duration(seconds=2**62)), ["duration"]),
        ("SetDrain", admin.SetDrainRequest(draining=True, by=LONG_BY), ["by"]),
        ("EvictBroker", admin.EvictBrokerRequest(broker_id=2**31), ["cluster", "broker_name", "broker_id"]),
        (
            "RecordChange",
            admin.RecordChangeRequest(topic="!", group="a b", by=LONG_BY),
            ["what", "topic", "group", "by"],
        ),
        (
            "RecordChange",
            admin.RecordChangeRequest(what="x" * 257, cluster="!", broker_names=["a", "b c"], undo="x" * 1_025),
            ["what", "cluster", "broker_names[1]", "undo"],
        ),
        ("RecordChange", admin.RecordChangeRequest(what="x", broker_names=["a"] * 1_001), ["broker_names"]),
        ("RecordChange", admin.RecordChangeRequest(what="x", before=Value(string_value="x" * 4_095)), ["before"]),
        ("RecordChange", admin.RecordChangeRequest(what="x", after=Value(number_value=math.nan)), ["after"]),
        ("ListBrokers", admin.ListBrokersRequest(cluster="a b", broker_name="!"), ["cluster", "broker_name"]),
        ("ListBrokers", admin.ListBrokersRequest(page_size=1_001), ["page_size"]),
        ("ListBrokers", admin.ListBrokersRequest(page_token="c1/a"), ["page_token"]),
        ("ListBrokerEvents", admin.ListBrokerEventsRequest(cluster="!"), ["cluster", "broker_name"]),
        ("ListFlapping", admin.ListFlappingRequest(limit=1_001), ["limit"]),
        ("ListFlapping", admin.ListFlappingRequest(cluster="!"), ["cluster"]),
        ("ListWatchers", admin.ListWatchersRequest(), ["topic"]),
        ("ListRouteDigests", admin.ListRouteDigestsRequest(page_size=10_001), ["page_size"]),
        ("ListRouteDigests", admin.ListRouteDigestsRequest(page_token="a b"), ["page_token"]),
    ],
)
async def test_bad_input_is_refused_field_by_field_and_changes_nothing(
    server: NameServerApp, peer: Peer, method: str, request_: Message, fields: list[str]
) -> None:
    await register(peer)
    change = server.core.routes.change
    refused = await refusal_of(getattr(peer.admin, method)(request_))
    assert (refused.status, refused.details.code) == (StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert refused.fields == fields
    assert (server.core.routes.change, server.core.kv.entries(), server.core.maintenance.windows()) == (change, [], [])


async def test_the_longest_durations_are_accepted(peer: Peer) -> None:
    await register(peer)
    await peer.admin.SetGuard(
        admin.SetGuardRequest(cluster="c1", mode=admin.GUARD_MODE_AUTO, duration=Duration(seconds=A_DAY))
    )
    await peer.admin.SetMaintenance(admin.SetMaintenanceRequest(cluster="c1", duration=Duration(seconds=A_WEEK)))
    (window,) = (await peer.admin.ListMaintenance(admin.ListMaintenanceRequest())).windows
    assert window.remaining.seconds == A_WEEK
