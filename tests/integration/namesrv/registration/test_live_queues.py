"""Measurements that heartbeats carry: remembered unread, merged when an operator asks, never failing one."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pointsman.manual_clock import ManualClock
from pointsman.v1 import admin_service_pb2 as admin
from pointsman.v1 import registration_service_pb2 as messages
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.core.live_queues import MAX_REPORT_BYTES
from tests.kit.ctl.command import ctl
from tests.kit.http_answer import ask
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer

OK = messages.BEAT_STATUS_OK
SLAVE = wire.identity(broker_id=1, addr="10.0.0.2:10911")
HOT = messages.TopicTotals(
    topic="orders", queue_count=4, idle_queue_count=2, put_rate=20.0, highest_put_rate=18.0, depth=90, highest_depth=80
)
STATS = messages.QueueStats(
    queue_count=4,
    topic_count=1,
    depth=90,
    put_rate=20.0,
    lag=900,
    top_put_rates=[
        messages.QueuePuts(topic="orders", queue_id=3, put_rate=18.0, depth=80, bytes=4_096),
        messages.QueuePuts(topic="orders", queue_id=0, put_rate=2.0, depth=10),
    ],
    top_lags=[
        messages.QueueLag(group="g", topic="orders", queue_id=3, lag=900, oldest_unread=Duration(seconds=45)),
    ],
    top_topics=[HOT],
    top_groups=[
        messages.GroupTotals(
            group="g",
            topic="orders",
            queue_count=4,
            lag=900,
            highest_lag=900,
            member_count=4,
            put_rate=20.0,
            commit_rate=5.0,
            behind_queue_count=1,
            membership_changes=21,
        )
    ],
)


def live(stats: messages.QueueStats = STATS, *, age: int = 3) -> bytes:
    message = messages.LiveQueues(stats=stats, age=Duration(seconds=age), interval=Duration(seconds=30))
    return message.SerializeToString()


async def beat(peer: Peer, generation: int, body: bytes, **more: Any) -> int:
    """Send a heartbeat with a measurement; return its status."""
    request = messages.HeartbeatRequest(beat=wire.beat(generation, **more), live_queues=body)
    answer = await peer.registration.Heartbeat(request)
    return answer.answer.status


async def listed(peer: Peer, **request: Any) -> admin.ListLiveQueuesResponse:
    return await peer.admin.ListLiveQueues(admin.ListLiveQueuesRequest(**request))


def counted(server: NameServerApp, result: str) -> float | None:
    name = "pointsman_namesrv_live_queue_reports_total"
    return server.metrics.registry.get_sample_value(name, {"result": result})


async def test_a_measurement_is_shown_with_its_age_and_what_to_do(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    generation = await peer.register(wire.topic("orders", 4))
    assert await beat(peer, generation, live()) == OK
    await clock.advance(10.0)
    found = await listed(peer)
    (topic,), (group,), (lag,), (broker,) = found.topics, found.groups, found.lags, found.brokers

    assert (topic.topic, topic.queue_count, topic.put_rate) == ("orders", 4, 20.0)
    assert topic.skew == pytest.approx(3.6)
    assert [finding.kind for finding in topic.findings] == ["key_skew"]
    assert [(each.queue_id, each.put_rate, each.bytes) for each in found.queues] == [(3, 18.0, 4_096), (0, 2.0, 0)]
    assert (group.lag, group.commit_rate, group.HasField("catch_up_seconds")) == (900, 5.0, False)
    assert [finding.kind for finding in group.findings] == ["too_few_queues", "rebalance_storm"]
    assert (lag.broker_name, lag.queue_id, lag.oldest_unread.seconds) == ("a", 3, 45)
    assert (broker.problem, broker.age.seconds, broker.interval.seconds, broker.lag) == ("", 13, 30, 900)
    assert (found.broker_count, found.measured_broker_count, counted(server, "kept")) == (1, 1, 1)


async def test_on_a_stream_the_last_measurement_stays_while_equal_heartbeats_follow(
    peer: Peer, clock: ManualClock
) -> None:
    generation = await peer.register("orders")
    stream = peer.registration.KeepAlive()
    ages = []
    for body in (live(age=0), live(age=0), b"", b"", live(age=1)):
        request = messages.KeepAliveRequest(beat=wire.beat(generation), live_queues=body)
        await stream.write(request)
        await stream.read()
        (broker,) = (await listed(peer)).brokers
        ages.append(broker.age.seconds)
        await clock.advance(30.0)
    stream.cancel()

    assert ages == [0, 0, 30, 60, 1]


async def test_json_over_http_equals_the_output_of_pointsmanctl(server: NameServerApp, peer: Peer) -> None:
    await beat(peer, await peer.register(wire.topic("orders", 4)), live())
    for query, command in (
        ("", ()),
        ("?topic=orders&limit=1&cluster=c1", ("orders", "--limit", "1", "--cluster", "c1")),
    ):
        printed = await ctl("--namesrv", server.addr, "--output", "json", "queues", *command)
        (queues,) = json.loads((await ask(server.monitoring_port, f"/v1/queues{query}")).body)["nodes"]
        (groups,) = json.loads((await ask(server.monitoring_port, f"/v1/groups{query}")).body)["nodes"]

        assert [queues] == json.loads(printed.out)["nodes"]
        assert groups == {name: value for name, value in queues.items() if name not in {"topics", "queues"}}
        assert [each["lag"] for each in groups["groups"]] == [900]


@pytest.mark.parametrize(
    ("body", "result", "problem"),
    [
        (b"\xff\xff", "invalid", "its agent sent a measurement that cannot be read: "),
        (
            live(messages.QueueStats(put_rate=-1.0)),
            "invalid",
            "its agent sent a measurement that cannot be read: live_queues.stats.put_rate must be finite",
        ),
        (b"x" * (MAX_REPORT_BYTES + 1), "too_large", "no measurement: "),
    ],
    ids=["no message", "a wrong field", "too large"],
)
async def test_a_measurement_that_cannot_be_used_fails_no_heartbeat_and_is_named(
    server: NameServerApp, peer: Peer, body: bytes, result: str, problem: str
) -> None:
    assert await beat(peer, await peer.register("orders"), body) == OK
    found = await listed(peer)
    (broker,) = found.brokers

    assert broker.problem.startswith(problem)
    assert (found.broker_count, found.measured_broker_count, len(found.topics)) == (1, 0, 0)
    assert counted(server, result) == 1
    again = await listed(peer)
    assert again.brokers[0].problem.startswith("no measurement")


async def test_a_measurement_ends_with_its_registration(server: NameServerApp, peer: Peer) -> None:
    first = await peer.register("orders")
    await beat(peer, first, live())
    second = await peer.register("orders", version=(0, 0, 2))
    assert (await listed(peer)).measured_broker_count == 0
    assert await beat(peer, first, live()) == messages.BEAT_STATUS_STALE_GENERATION
    assert (await listed(peer)).measured_broker_count == 0

    assert await beat(peer, second, live(), version=(0, 0, 2)) == OK
    assert (await listed(peer)).measured_broker_count == len(server.live_queues) == 1
    await peer.registration.UnregisterBroker(wire.unregistration(wire.identity(), second))
    assert (len(server.live_queues), (await listed(peer)).broker_count) == (0, 0)


async def test_a_broker_that_departed_is_named_while_its_lag_is_in_no_sum(peer: Peer, clock: ManualClock) -> None:
    first = await peer.register("orders", heartbeat=1, expiry=3)
    await beat(peer, first, live())
    await clock.advance(6)
    (broker,) = (found := await listed(peer)).brokers
    assert (found.broker_count, found.measured_broker_count, list(found.groups)) == (1, 0, [])
    assert (broker.broker_name, broker.problem.partition(":")[0]) == (wire.identity().broker_name, "departed")

    await beat(peer, await peer.register("orders", version=(0, 0, 2)), live(), version=(0, 0, 2))
    assert [each.problem for each in (await listed(peer)).brokers] == [""]


async def test_a_slave_counts_only_while_its_master_is_not_measured(peer: Peer) -> None:
    master, slave = await peer.register("orders"), await peer.register("orders", who=SLAVE)
    await beat(peer, slave, live(messages.QueueStats(depth=1)), who=SLAVE)
    assert [each.depth for each in (await listed(peer)).brokers] == [1]
    await beat(peer, master, live(messages.QueueStats(depth=2)))
    assert [each.depth for each in (await listed(peer)).brokers] == [2]


async def test_brokers_without_a_measurement_come_first_and_one_cluster_can_be_asked_for(peer: Peer) -> None:
    for name, cluster in (("a", "c1"), ("b", "c1"), ("a", "c2")):
        who = wire.identity(name, addr=f"{name}-{cluster}:1", cluster=cluster)
        generation = await peer.register("orders", who=who)
        if (name, cluster) != ("b", "c1"):
            await beat(peer, generation, live(), who=who)
    everywhere, one = await listed(peer), await listed(peer, cluster="c2")

    assert [(each.cluster, each.broker_name) for each in everywhere.brokers] == [("c1", "b"), ("c1", "a"), ("c2", "a")]
    assert (everywhere.broker_count, everywhere.measured_broker_count) == (3, 2)
    assert [(each.cluster, each.put_rate) for each in one.topics] == [("c2", 20.0)]


@pytest.mark.parametrize(
    ("request_", "status", "text"),
    [
        ({"cluster": "c9"}, grpc.StatusCode.NOT_FOUND, "c9"),
        ({"topic": "a\nb"}, grpc.StatusCode.INVALID_ARGUMENT, "topic"),
        ({"limit": 1_001}, grpc.StatusCode.INVALID_ARGUMENT, "limit"),
    ],
)
async def test_a_wrong_request_is_refused(
    peer: Peer, request_: dict[str, Any], status: grpc.StatusCode, text: str
) -> None:
    await peer.register("orders")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(peer, **request_)
    assert refused.value.code() is status
    assert text in (refused.value.details() or "")
