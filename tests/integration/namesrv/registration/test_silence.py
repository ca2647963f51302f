"""A silent broker is removed from the route after its expiry plus at most one sweep, and not before."""

from __future__ import annotations

from pointsman.manual_clock import ManualClock
from pointsman.v1.route_service_pb2 import GetTopicRouteRequest
from pointsman_namesrv.app import NameServerApp
from tests.kit.name_server.peer import Peer

EXPIRY = 120.0
SWEEP = 5.0


async def test_a_short_expiry_that_is_declared_while_the_sweep_sleeps_is_kept(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await clock.advance(0.7)
    await peer.register("orders", heartbeat=1, expiry=3)
    await clock.advance(3 + 0.6 + 0.5)
    assert server.core.replicas() == []


async def test_a_silent_broker_is_removed_from_the_route_at_120_seconds_plus_one_sweep_and_not_before(
    server: NameServerApp, peer: Peer, clock: ManualClock
) -> None:
    await peer.register("orders")
    query = GetTopicRouteRequest(topic="orders")

    await clock.advance(EXPIRY)
    answer = await peer.route.GetTopicRoute(query)
    assert [data.broker_name for data in answer.route.broker_datas] == ["a"]

    await clock.advance(SWEEP)
    answer = await peer.route.GetTopicRoute(query)
    assert not answer.route.broker_datas
    assert [each.reason for each in answer.route.absent_brokers] == ["SILENCE"]
    assert server.core.replicas() == []
