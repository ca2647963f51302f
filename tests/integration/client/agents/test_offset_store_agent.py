"""A group's offsets at real agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import AgentFailedError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.offset_store import CONFIRMED_TTL_SECONDS, AgentOffsetStore
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import LoadedOffsets, OffsetStore
from tests.kit.agent.consumer_agents import ConsumerAgent, Routes, broker_data, consumer_agents, queues_of
from tests.kit.waiting import read_until

StoreOf = Callable[[Routes], AgentOffsetStore]


@pytest.fixture
async def store_of(clock: ManualClock) -> AsyncIterator[StoreOf]:
    links = AgentLinks()
    yield lambda routes: AgentOffsetStore(routes, links, group="g", clock=clock)
    await links.close(timeout_seconds=1.0)


def commits(agent: ConsumerAgent) -> int:
    return agent.server.metrics.rpcs.labels("CommitOffsets", "OK").count


def held(agent: ConsumerAgent) -> dict[int, int]:
    """Committed offsets of the topic orders."""
    return {
        key.queue_id: offset for key, offset in agent.offsets.page(limit=10_000, group="g") if key.topic == "orders"
    }


async def commits_all(store: OffsetStore, offsets: Mapping[MessageQueue, int]) -> bool:
    return not await store.commit(offsets)


async def test_offsets_that_were_committed_are_loaded_and_others_are_absent(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        routes = Routes(a.data(), b.data())
        store: OffsetStore = store_of(routes)
        a0, b0 = *queues_of("a", 0), *queues_of("b", 0)
        assert await store.load([a0, b0]) == LoadedOffsets({}, {})
        assert await store.commit({a0: 7, b0: 2**64 - 1}) == {}
        assert await store_of(routes).load([a0, b0, *queues_of("a", 1)]) == LoadedOffsets({a0: 7, b0: 2**64 - 1}, {})


async def test_a_group_whose_offsets_were_removed_after_a_reset_begins_and_commits_as_a_new_one(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        routes = Routes(a.data())
        (a0,) = queues_of("a", 0)
        key = QueueKey("orders", 0)
        epoch = a.offsets.reset("g", {key: 9}, now=5_000)[key]
        a.offsets.delete("g")
        store: OffsetStore = store_of(routes)
        loaded = await store.load([a0])
        assert loaded == LoadedOffsets({}, {}, {}, {a0: epoch})
        for offset in (3, 4):
            assert await store.commit({a0: offset}, epochs=loaded.epochs) == {}
        assert held(a) == {0: 4}


async def test_what_an_agent_is_known_to_have_is_not_committed_again(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        store = store_of(Routes(a.data()))
        offsets = dict.fromkeys(queues_of("a", 0, 1), 5)
        for _ in range(5):
            assert await store.commit(offsets) == {}
        assert commits(a) == 1
        await store.commit({**offsets, **dict.fromkeys(queues_of("a", 1), 6)})
        assert (commits(a), held(a)) == (2, {0: 5, 1: 6})


async def test_a_higher_offset_that_is_stored_stays_unless_it_is_reset(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        routes = Routes(a.data())
        (a0,) = queues_of("a", 0)
        await store_of(routes).commit({a0: 9})
        store = store_of(routes)
        assert await store.commit({a0: 4}) == {}
        assert held(a) == {0: 9}
        assert await store.commit({a0: 4}, reset=True) == {}
        assert held(a) == {0: 4}
        assert await store.commit({a0: 5}) == {}
        assert held(a) == {0: 5}


async def test_one_bad_queue_fails_alone_with_its_own_error(clock: ManualClock, store_of: StoreOf) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        a.ends.table = {QueueKey("orders", queue_id): 100 for queue_id in range(50)}
        store = store_of(Routes(a.data()))
        good = dict.fromkeys(queues_of("a", *range(20)), 100)
        beyond = dict.fromkeys(queues_of("a", *range(20, 50)), 101)
        unknown = dict.fromkeys(queues_of("a", *range(2_000, 2_050)), 1)
        failed = await store.commit({**beyond, **good, **unknown})
        assert failed.keys() == beyond.keys() | unknown.keys()
        assert held(a) == dict.fromkeys(range(20), 100)
        (beyond_one,) = queues_of("a", 33)
        error = failed[beyond_one]
        assert isinstance(error, RequestRejectedError)
        assert error.status is grpc.StatusCode.OUT_OF_RANGE
        assert "queue 33 of orders on a" in str(error)
        assert "which is 100: 101" in str(error)
        assert {failed[queue].status for queue in unknown} == {grpc.StatusCode.INVALID_ARGUMENT}  # type: ignore[attr-defined]  # of RequestRejectedError


async def test_more_queues_than_one_call_accepts_are_committed_and_loaded(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        routes = Routes(a.data())
        offsets = {queue: n for n, queue in enumerate(queues_of("a", *range(1_800)))}
        assert await store_of(routes).commit(offsets) == {}
        assert (await store_of(routes).load(list(offsets))).offsets == offsets
        assert commits(a) == 2


async def test_queues_of_an_agent_that_is_down_fail_and_are_committed_once_it_is_back(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "b", clock=clock) as (a, b):
        store = store_of(Routes(a.data(), b.data()))
        a0, b0, c0 = *queues_of("a", 0), *queues_of("b", 0), *queues_of("nowhere", 0)
        await b.stop()
        failed = await store.commit({a0: 1, b0: 2, c0: 3})
        assert failed.keys() == {b0, c0}
        assert {type(error) for error in failed.values()} == {AgentFailedError}
        assert all(error.retriable for error in failed.values())
        assert "no agent of broker nowhere" in str(failed[c0])
        unknown = (await store.load([a0, b0])).unknown
        assert unknown.keys() == {b0}
        await b.start()
        await read_until(lambda: commits_all(store, {a0: 1, b0: 2}))
        assert held(b) == {0: 2}


async def test_offsets_are_unknown_and_not_absent_while_an_agent_loads_them(
    clock: ManualClock, store_of: StoreOf
) -> None:
    agent = ConsumerAgent("a", clock=clock)
    agent.store.table[OffsetKey("g", "orders", 0)] = 8
    await agent.start(is_loaded=False)
    store = store_of(Routes(agent.data()))
    queues = queues_of("a", 0, 1)
    loaded = await store.load(queues)
    assert loaded.offsets == {}
    assert loaded.unknown.keys() == set(queues)
    assert (await store.commit(dict.fromkeys(queues, 1))).keys() == set(queues)
    await agent.flusher.refresh()
    assert await store.load(queues) == LoadedOffsets({queues[0]: 8}, {})
    await agent.stop()


async def test_after_a_failover_the_new_agent_gets_all_offsets_that_are_held(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "a", clock=clock) as (master, slave):
        routes = Routes(broker_data("a", master.replica(0), slave.replica(1)))
        store = store_of(routes)
        offsets = dict.fromkeys(queues_of("a", 0, 1, 2), 5)
        await store.commit(offsets)
        assert (held(master), held(slave)) == ({0: 5, 1: 5, 2: 5}, {})
        await master.stop()
        routes.brokers = (broker_data("a", slave.replica(1)),)
        assert await store.commit(offsets) == {}
        assert held(slave) == {0: 5, 1: 5, 2: 5}


@pytest.mark.parametrize("how", ["a failed call", "notice of a broken connection", "time"])
async def test_an_agent_that_lost_its_memory_gets_all_offsets_again(
    clock: ManualClock, store_of: StoreOf, how: str
) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        store = store_of(Routes(a.data()))
        offsets = dict.fromkeys(queues_of("a", 0, 1), 5)
        await store.commit(offsets)
        await a.stop()
        if how == "a failed call":
            failed = await store.commit(dict.fromkeys(queues_of("a", 0), 6))
            assert failed
        await a.start()
        assert held(a) == {}
        if how == "notice of a broken connection":
            store.distrust(a.addr)
        elif how == "time":
            assert await store.commit(offsets) == {}
            assert held(a) == {}
            clock.now += CONFIRMED_TTL_SECONDS
        await read_until(lambda: commits_all(store, offsets))
        assert held(a) == {0: 5, 1: 5}


async def test_a_refusal_that_names_no_queue_fails_them_all(clock: ManualClock) -> None:
    async with consumer_agents("a", clock=clock) as (a,):
        links = AgentLinks()
        store = AgentOffsetStore(Routes(a.data()), links, group="no group!", clock=clock)
        queues = queues_of("a", 0, 1)
        failed = await store.commit(dict.fromkeys(queues, 1))
        assert failed.keys() == set(queues)
        assert all("group may hold only" in str(error) for error in failed.values())
        await links.close(timeout_seconds=1.0)


async def test_what_a_slaves_agent_accepted_without_a_master_counts_where_it_is_higher(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "a", clock=clock) as (master, slave):
        slave.is_master = False
        q0, q1, q2 = queues_of("a", 0, 1, 2)
        assert await store_of(Routes(broker_data("a", slave.replica(1)))).commit({q0: 500, q1: 5}) == {}
        store = store_of(Routes(broker_data("a", master.replica(), slave.replica(1))))
        await store.commit({q0: 400, q1: 9, q2: 1})
        assert await store.load([q0, q1, q2]) == LoadedOffsets({q0: 500, q1: 9, q2: 1}, {}, {q0: 400})
        await slave.stop()
        assert await store.load([q0]) == LoadedOffsets({q0: 400}, {})


async def test_a_slaves_copy_of_its_masters_offsets_does_not_undo_a_reset(
    clock: ManualClock, store_of: StoreOf
) -> None:
    async with consumer_agents("a", "a", clock=clock) as (master, slave):
        slave.is_master = False
        (q0,) = queues_of("a", 0)
        slave.offsets.absorb({OffsetKey("g", "orders", 0): 500}.items())
        store = store_of(Routes(broker_data("a", master.replica(), slave.replica(1))))
        await store.commit({q0: 500})
        await store.commit({q0: 3}, reset=True)
        assert (await store.load([q0])).offsets == {q0: 3}
