"""A consumer's locks of queues, at real agents."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.pointsman_grpc.agents.queue_lock import AgentQueueLocks
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import QueueLocks
from tests.kit.agent.consumer_agents import ConsumerAgent, Routes, broker_data, consumer_agents, queues_of
from tests.kit.waiting import read_until

C1, C2 = "10.0.0.1@1", "10.0.0.2@1"

LocksOf = Callable[[str, Routes], QueueLocks]


@pytest.fixture
async def locks_of() -> AsyncIterator[LocksOf]:
    links = AgentLinks()
    yield lambda client_id, routes: AgentQueueLocks(routes, links, group="g", client_id=client_id)
    await links.close(timeout_seconds=1.0)


async def test_a_queue_is_one_clients_until_it_is_unlocked(clock: ManualClock, locks_of: LocksOf) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        routes = Routes(a.data(), b.data())
        first, second = locks_of(C1, routes), locks_of(C2, routes)
        queues = queues_of("a", 0, 1) + queues_of("b", 0)
        assert await first.lock(queues) == set(queues)
        assert await second.lock(queues + queues_of("b", 1)) == set(queues_of("b", 1))
        assert await first.lock(queues) == set(queues)
        await first.unlock(queues_of("a", 1))
        assert await second.lock(queues) == set(queues_of("a", 1))


async def test_holders_are_those_of_unexpired_locks(clock: ManualClock, locks_of: LocksOf) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        routes = Routes(a.data(), b.data())
        first, second = locks_of(C1, routes), locks_of(C2, routes)
        queues = queues_of("a", 0, 1, 2) + queues_of("b", 0)
        assert await first.holders(queues) == {}
        await first.lock(queues_of("a", 0) + queues_of("b", 0))
        clock.now += 30.0
        await second.lock(queues_of("a", 1))
        expected = {**dict.fromkeys(queues_of("a", 0) + queues_of("b", 0), C1), **dict.fromkeys(queues_of("a", 1), C2)}
        assert await first.holders(queues) == expected
        clock.now += 30.001
        assert await first.holders(queues) == dict.fromkeys(queues_of("a", 1), C2)
        await b.stop()
        assert await second.holders(queues) == dict.fromkeys(queues_of("a", 1), C2)


async def test_more_queues_than_one_call_accepts_are_locked_and_listed(clock: ManualClock, locks_of: LocksOf) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        locks = locks_of(C1, Routes(a.data()))
        queues = queues_of("a", *range(1_500))
        assert await locks.lock(queues) == set(queues)
        assert len(await locks.holders(queues)) == 1_500
        await locks.unlock(queues)
        assert await locks.holders(queues) == {}


async def test_queues_that_the_broker_does_not_have_keep_no_others_from_being_locked(
    clock: ManualClock, locks_of: LocksOf
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        locks = locks_of(C1, Routes(a.data()))
        good = queues_of("a", *range(20))
        bad = queues_of("a", *range(2_000, 2_060)) + queues_of("a", 0, 1, topic="gone")
        assert await locks.lock(good + bad) == set(good)
        await locks.unlock(good + bad)
        assert len(a.locks) == 0


async def test_the_retry_topic_of_a_group_is_locked_like_any_other(clock: ManualClock, locks_of: LocksOf) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        queues = queues_of("a", 0, 15, topic="%RETRY%g")
        assert await locks_of(C1, Routes(a.data())).lock(queues) == set(queues)


async def test_queues_of_an_agent_that_is_down_are_not_locked_and_that_is_logged_once(
    clock: ManualClock, locks_of: LocksOf, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        locks = locks_of(C1, Routes(a.data(), b.data()))
        queues = queues_of("a", 0) + queues_of("b", 0) + queues_of("nowhere", 0)
        assert await locks.lock(queues_of("b", 0)) == set(queues_of("b", 0))
        await b.stop()
        for _ in range(3):
            assert await locks.lock(queues) == set(queues_of("a", 0))
        await locks.unlock(queues)
        logged = [record for record in caplog.records if "cannot be locked" in record.getMessage()]
        assert [record.levelno for record in logged] == [logging.WARNING] * 2
        assert "c1/nowhere" in logged[1].getMessage()
        await b.start()

        async def is_locked() -> bool:
            return bool(await locks.lock(queues_of("b", 0)))

        await read_until(is_locked)
        assert "c1/b can be locked again" in caplog.text


async def test_an_agent_that_hangs_costs_a_second_and_delays_no_other(clock: ManualClock, locks_of: LocksOf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with consumer_agents("a", clock=clock) as (a,):
            hanging = ConsumerAgent("b", clock=clock)
            hanging.addr = f"127.0.0.1:{silent.getsockname()[1]}"
            locks = locks_of(C1, Routes(a.data(), hanging.data()))
            async with asyncio.timeout(10):
                assert await locks.lock(queues_of("a", 0) + queues_of("b", 0)) == set(queues_of("a", 0))


async def test_locks_are_the_masters_and_without_one_those_of_the_lowest_id(
    clock: ManualClock, locks_of: LocksOf
) -> None:
    async with consumer_agents("a", "a", clock=clock) as (slave, master):
        whole = broker_data("a", slave.replica(1), master.replica(0))
        await locks_of(C1, Routes(whole)).lock(queues_of("a", 0))
        assert (len(master.locks), len(slave.locks)) == (1, 0)
        await locks_of(C1, Routes(broker_data("a", slave.replica(1)))).lock(queues_of("a", 0))
        assert (len(master.locks), len(slave.locks)) == (1, 1)
