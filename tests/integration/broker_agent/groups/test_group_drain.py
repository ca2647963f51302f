"""A draining broker removes its consumers and accepts no new ones until the drain is aborted."""

from __future__ import annotations

import asyncio

import grpc

from pointsman.manual_clock import ManualClock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_agent.core.group_rules import GroupRules
from tests.kit.agent.group_clients import Consumer, GroupWatch, ending_of, reads
from tests.kit.agent.services import agent_services

WARM_UP = 30.0


async def test_a_draining_broker_accepts_no_consumer_and_after_an_abort_accepts_all() -> None:
    clock = ManualClock()
    async with agent_services(clock=clock, rules=GroupRules(warm_up=WARM_UP)) as agent:
        await clock.advance(WARM_UP)
        before, late, again = (Consumer(agent.addr, f"10.0.0.{n}@1", reads("billing")) for n in (1, 2, 3))
        await before.beat()
        draining = asyncio.create_task(agent.groups.drain())
        assert (await ending_of(before.stream))[0] is grpc.StatusCode.UNAVAILABLE
        await draining

        assert (await ending_of(late.stub.KeepMembership()))[0] is grpc.StatusCode.UNAVAILABLE
        assert (await GroupWatch(late.channel, "billing").ending())[0] is grpc.StatusCode.UNAVAILABLE

        agent.groups.resume()
        again.stream = again.stub.KeepMembership()
        assert (await again.beat()).status == wire.MEMBERSHIP_STATUS_OK
        watch = GroupWatch(again.channel, "billing")
        assert (await watch.news()).state == wire.GROUP_STATE_WARMING
        await clock.advance(WARM_UP)
        while (news := await watch.news()).state != wire.GROUP_STATE_READY:
            pass
        assert again.client_id in news.client_ids
        watch.call.cancel()
        for consumer in (before, late, again):
            await consumer.crash()
