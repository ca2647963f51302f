"""Offsets and queue locks at RocketMQ's brokers, and what goes wrong between them and a member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
)
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_client.rocketmq.groups.broker_locks import BrokerQueueLocks
from pointsman_client.rocketmq.groups.broker_offsets import (
    CONFIRMED_TTL_SECONDS,
    LONG_AGO,
    MAX_CONCURRENT_CALLS,
    BrokerOffsetStore,
)
from pointsman_client.rocketmq.groups.member_links import MemberLinks
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions
from tests.kit.broker.rocketmq.fake_broker import Answer, Log
from tests.kit.broker.rocketmq.group_broker import GroupBroker, routed
from tests.kit.broker.rocketmq.stored_messages import stored_message
from tests.kit.client.memory_group import RoutesInMemory, queue_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
CODES = [code for code in Code if code is not Code.SUCCESS]
Q0, Q1 = queue_of(0), queue_of(1)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as broker:
        yield broker


@pytest.fixture
def routes(clock: ManualClock, broker: GroupBroker) -> RoutesInMemory:
    routes = RoutesInMemory(clock)
    routes.set(routed("orders", {"a": broker.addr}))
    return routes


@pytest.fixture
async def links() -> AsyncIterator[MemberLinks]:
    options = RocketmqOptions(connect_timeout_seconds=0.5)
    links = MemberLinks(options, on_request=lambda *_: None, on_lost=lambda _: None)
    yield links
    await links.close()


@pytest.fixture
async def store(clock: ManualClock, routes: RoutesInMemory, links: MemberLinks) -> AsyncIterator[BrokerOffsetStore]:
    transport = RocketmqTransport()
    yield BrokerOffsetStore(routes, links, transport, route=routes.topic_route, group="billing", clock=clock)
    await transport.close()


@pytest.fixture
def locks(routes: RoutesInMemory, links: MemberLinks) -> BrokerQueueLocks:
    return BrokerQueueLocks(routes, links, group="billing", client_id="c@1")


def sent(broker: GroupBroker, code: Request) -> int:
    return broker.codes().count(code)


def message(offset: int, born_at: datetime) -> bytes:
    return stored_message(b"body", offset=offset, born_ms=int(born_at.timestamp() * 1000))


# --- load -----------------------------------------------------------------------------------------------------


async def test_offsets_are_loaded_and_missing_ones_are_neither_loaded_nor_unknown(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    broker.offsets["orders", 0] = 7
    loaded = await store.load([Q0, Q1])
    assert (loaded.offsets, loaded.unknown) == ({Q0: 7}, {})


async def test_ten_thousand_offsets_are_loaded_with_a_bounded_number_of_calls(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    queues = [queue_of(number) for number in range(10_000)]
    broker.offsets.update({("orders", number): number for number in range(10_000)})
    loaded = await store.load(queues)
    assert (loaded.offsets, loaded.unknown) == ({queue: queue.queue_id for queue in queues}, {})
    assert broker.most_running <= MAX_CONCURRENT_CALLS
    assert sent(broker, Request.QUERY_CONSUMER_OFFSET) == 10_000


@pytest.mark.parametrize("code", [code for code in CODES if code is not Code.QUERY_NOT_FOUND])
async def test_after_any_other_code_the_offset_is_unknown(
    store: BrokerOffsetStore, broker: GroupBroker, code: Code
) -> None:
    broker.answers[Request.QUERY_CONSUMER_OFFSET] = Answer(code)
    loaded = await store.load([Q0])
    assert loaded.offsets == {}
    assert isinstance(loaded.unknown[Q0], BrokerRefusedError)


@pytest.mark.parametrize("value", ["", "x", "1.5", "--1", "9" * 5_000])
async def test_an_offset_that_is_not_a_number_is_unknown(
    store: BrokerOffsetStore, broker: GroupBroker, value: str
) -> None:
    broker.answers[Request.QUERY_CONSUMER_OFFSET] = Answer(ext={"offset": value})
    assert isinstance((await store.load([Q0])).unknown[Q0], BrokerRefusedError)


async def test_a_negative_offset_is_none(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    broker.answers[Request.QUERY_CONSUMER_OFFSET] = Answer(ext={"offset": "-1"})
    loaded = await store.load([Q0])
    assert (loaded.offsets, loaded.unknown) == ({}, {})


async def test_a_broker_that_hangs_takes_the_time_of_one_call(
    store: BrokerOffsetStore, broker: GroupBroker, routes: RoutesInMemory
) -> None:
    queues = [queue_of(number, broker_name=name) for name in ("a", "b") for number in range(500)]
    async with GroupBroker() as hanging:
        hanging.is_hanging = True
        routes.set(routed("orders", {"a": broker.addr, "b": hanging.addr}))
        broker.offsets.update({("orders", number): 1 for number in range(500)})
        loaded = await store.load(queues)
        assert 0 < sent(hanging, Request.QUERY_CONSUMER_OFFSET) <= MAX_CONCURRENT_CALLS
    assert loaded.offsets == {queue: 1 for queue in queues if queue.broker_name == "a"}
    assert len(loaded.unknown) == 500
    assert {type(error) for error in loaded.unknown.values()} <= {BrokerTimeoutError, BrokerUnreachableError}


async def test_offsets_of_a_broker_without_a_route_are_unknown(
    store: BrokerOffsetStore,
) -> None:
    unknown = MessageQueue("orders", "c1", "z", 0)
    loaded = await store.load([unknown])
    assert str(loaded.unknown[unknown]) == "broker c1/z: no route has it"


async def test_answers_out_of_order_are_of_their_queues(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    broker.offsets.update({("orders", 0): 10, ("orders", 1): 11})
    broker.held.add(Request.QUERY_CONSUMER_OFFSET)
    loading = asyncio.ensure_future(store.load([Q0, Q1]))
    await broker.until_held(2)
    broker.release(reverse=True)
    assert (await loading).offsets == {Q0: 10, Q1: 11}


async def test_a_query_is_repeated_once_the_connection_is_open_again(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    broker.offsets["orders", 0] = 3
    assert (await store.load([Q0])).offsets == {Q0: 3}
    broker.held.add(Request.QUERY_CONSUMER_OFFSET)
    loading = asyncio.ensure_future(store.load([Q0]))
    await broker.until_held()
    broker.held.clear()
    broker.close_connections()
    assert (await loading).offsets == {Q0: 3}


async def test_after_the_close_no_connection_is_opened(
    store: BrokerOffsetStore, locks: BrokerQueueLocks, broker: GroupBroker, links: MemberLinks
) -> None:
    await links.close()
    failures = await store.commit({Q0: 5})
    assert isinstance(failures[Q0], ClientClosedError)
    assert await locks.lock([Q0]) == frozenset()
    assert broker.connections == 0


# --- commit ---------------------------------------------------------------------------------------------------


async def test_offsets_go_back_only_with_a_reset(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    for offset in (5, 9, 7, 9):
        assert await store.commit({Q0: offset}) == {}
    assert (broker.offsets["orders", 0], sent(broker, Request.UPDATE_CONSUMER_OFFSET)) == (9, 2)
    assert await store.commit({Q0: 2}, reset=True) == {}
    assert broker.offsets["orders", 0] == 2
    assert await store.commit({Q0: 3}) == {}
    assert broker.offsets["orders", 0] == 3


async def test_the_first_offset_of_a_topic_is_committed_alone(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    # Brokers 4.9.7 and 5.3.3 may lose one of several that arrive together, without an error.
    broker.held.add(Request.UPDATE_CONSUMER_OFFSET)
    commit = asyncio.ensure_future(store.commit({queue_of(number): 5 for number in range(4)}))
    await broker.until_held()
    await store.load([Q0])  # Behind all requests that were sent until now.
    assert sent(broker, Request.UPDATE_CONSUMER_OFFSET) == 1
    broker.held.clear()
    broker.release()
    assert await commit == {}
    assert [broker.offsets["orders", number] for number in range(4)] == [5] * 4


async def test_a_commit_that_was_sent_before_a_reset_does_not_undo_it(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    broker.held.add(Request.UPDATE_CONSUMER_OFFSET)
    commit = asyncio.ensure_future(store.commit({Q0: 9}))
    await broker.until_held()
    reset = asyncio.ensure_future(store.commit({Q0: 2}, reset=True))
    await asyncio.sleep(0)
    broker.held.clear()
    broker.release()
    assert (await commit, await reset) == ({}, {})
    assert broker.offsets["orders", 0] == 2


async def test_an_offset_is_committed_again_after_a_minute_and_at_a_new_master(
    store: BrokerOffsetStore, broker: GroupBroker, routes: RoutesInMemory, clock: ManualClock
) -> None:
    await store.commit({Q0: 5})
    broker.offsets.clear()
    await store.commit({Q0: 5})
    assert not broker.offsets
    await clock.advance(CONFIRMED_TTL_SECONDS)
    await store.commit({Q0: 5})
    assert broker.offsets["orders", 0] == 5
    async with GroupBroker() as promoted:
        routes.set(routed("orders", {"a": promoted.addr}))
        await store.commit({Q0: 5})
        assert promoted.offsets["orders", 0] == 5


async def test_after_another_member_moved_the_offset_back_this_one_commits(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    await store.commit({Q0: 100})
    broker.offsets["orders", 0] = 50
    assert (await store.load([Q0])).offsets == {Q0: 50}
    await store.commit({Q0: 60})
    assert broker.offsets["orders", 0] == 60


@pytest.mark.parametrize("code", CODES)
async def test_a_commit_that_a_broker_refuses_is_sent_again(
    store: BrokerOffsetStore, broker: GroupBroker, code: Code
) -> None:
    broker.answers[Request.UPDATE_CONSUMER_OFFSET] = Answer(code)
    failures = await store.commit({Q0: 5, Q1: 6})
    assert {queue: type(error) for queue, error in failures.items()} == {
        Q0: BrokerRefusedError,
        Q1: BrokerRefusedError,
    }
    broker.answers.clear()
    assert await store.commit({Q0: 5, Q1: 6}) == {}
    assert broker.offsets == {("orders", 0): 5, ("orders", 1): 6}


async def test_the_first_commit_of_a_new_group_creates_it_by_a_pull(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    update = broker.handlers[Request.UPDATE_CONSUMER_OFFSET]

    def of_known_group(command: Command, body: bytes) -> Answer | Awaitable[Answer]:
        pulls = [each for each in broker.requests if each.code == Request.PULL_MESSAGE]
        if not any(each.ext["consumerGroup"] == "billing" for each in pulls):
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST, remark="Group billing not exist!")
        return update(command, body)

    broker.handlers[Request.UPDATE_CONSUMER_OFFSET] = of_known_group
    assert await store.commit({Q0: 0, Q1: 0}) == {}
    assert broker.offsets == {("orders", 0): 0, ("orders", 1): 0}
    assert (sent(broker, Request.PULL_MESSAGE), sent(broker, Request.UPDATE_CONSUMER_OFFSET)) == (1, 3)


async def test_a_broker_that_does_not_respond_delays_no_commit_at_others(
    store: BrokerOffsetStore, broker: GroupBroker, routes: RoutesInMemory
) -> None:
    async with GroupBroker() as other:
        routes.set(routed("orders", {"a": broker.addr, "b": other.addr}))
        broker.held.add(Request.UPDATE_CONSUMER_OFFSET)
        queues = [queue_of(number, broker_name=name) for number in range(2) for name in "ab"]
        commit = asyncio.ensure_future(store.commit(dict.fromkeys(queues, 5)))
        await other.until_asked(Request.UPDATE_CONSUMER_OFFSET, 2)
        assert sent(broker, Request.UPDATE_CONSUMER_OFFSET) == 1
        assert not commit.done()
        broker.held.clear()
        broker.release()
        assert await commit == {}


async def test_one_broker_down_does_not_keep_the_others_from_commits(
    store: BrokerOffsetStore, broker: GroupBroker, routes: RoutesInMemory
) -> None:
    async with GroupBroker() as down:
        await down.stop()
        routes.set(routed("orders", {"a": broker.addr, "b": down.addr}))
        there = queue_of(0, broker_name="b")
        failures = await store.commit({Q0: 5, there: 5})
        assert failures.keys() == {there}
        assert broker.offsets["orders", 0] == 5
        await down.start()
        assert await store.commit({Q0: 5, there: 5}) == {}
        assert down.offsets["orders", 0] == 5


# --- begin ----------------------------------------------------------------------------------------------------


async def begun(store: BrokerOffsetStore) -> datetime:
    found = await store.begin({"orders": NOW})
    assert not found.unknown, found.unknown
    return found.moments["orders"]


async def test_a_new_group_begins_now(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    broker.logs["orders", 0] = Log(0, [message(0, NOW - timedelta(days=1))])
    assert await begun(store) == NOW


async def test_a_group_with_offsets_began_with_the_last_message_it_consumed(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    at = [NOW - timedelta(hours=hours) for hours in (9, 8, 7)]
    broker.logs["orders", 0] = Log(5, [message(5 + number, born_at) for number, born_at in enumerate(at)])
    broker.offsets["orders", 0] = 7  # Consumed: 5 and 6. Queue 1 was added.
    assert await begun(store) == at[1]
    broker.offsets["orders", 1] = 0
    broker.logs["orders", 1] = Log(0, [message(0, NOW - timedelta(hours=1))])
    assert await begun(store) == NOW - timedelta(hours=1)


async def test_messages_that_can_not_be_read_any_longer_were_consumed_long_ago(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    broker.offsets["orders", 0] = 7
    broker.logs["orders", 0] = Log(20, [message(20, NOW)])
    assert await begun(store) == LONG_AGO
    broker.logs["orders", 0] = Log(0, [message(0, NOW)])  # The broker lost its disk.
    assert await begun(store) == LONG_AGO
    broker.logs["orders", 0] = Log(6, [stored_message(b"body", offset=6, crc=1)])
    assert await begun(store) == LONG_AGO


async def test_a_pull_for_the_time_does_not_use_up_a_reset(store: BrokerOffsetStore, broker: GroupBroker) -> None:
    broker.offsets["orders", 0] = 1
    broker.logs["orders", 0] = Log(0, [message(0, NOW)])
    await begun(store)
    assert {each.ext["consumerGroup"] for each in broker.requests if each.code == Request.PULL_MESSAGE} == {
        "TOOLS_CONSUMER"
    }


async def test_where_only_the_own_group_may_read_the_time_is_found_too(
    store: BrokerOffsetStore, broker: GroupBroker
) -> None:
    broker.offsets["orders", 0] = 1
    broker.logs["orders", 0] = Log(0, [message(0, NOW - timedelta(days=1))])
    pull = broker.handlers[Request.PULL_MESSAGE]

    def permitted(command: Command, body: bytes) -> Answer | Awaitable[Answer]:
        if command.ext["consumerGroup"] == "billing":
            return pull(command, body)
        return Answer(Code.NO_PERMISSION)

    broker.handlers[Request.PULL_MESSAGE] = permitted
    assert await begun(store) == NOW - timedelta(days=1)


@pytest.mark.parametrize("failing", [Request.QUERY_CONSUMER_OFFSET, Request.PULL_MESSAGE])
async def test_a_broker_that_fails_does_not_make_the_group_new(
    store: BrokerOffsetStore, broker: GroupBroker, failing: Request
) -> None:
    broker.offsets["orders", 0] = 1
    broker.logs["orders", 0] = Log(0, [message(0, NOW - timedelta(days=1))])
    broker.answers[failing] = Answer(Code.SYSTEM_BUSY)
    found = await store.begin({"orders": NOW})
    assert not found.moments
    assert isinstance(found.unknown["orders"], BrokerError)
    broker.answers.clear()
    assert await begun(store) == NOW - timedelta(days=1)


async def test_a_topic_without_a_route_is_unknown(store: BrokerOffsetStore) -> None:
    assert (await store.begin({"refunds": NOW})).unknown.keys() == {"refunds"}


# --- locks ----------------------------------------------------------------------------------------------------


async def test_queues_are_locked_renewed_and_unlocked(locks: BrokerQueueLocks, broker: GroupBroker) -> None:
    broker.locks["orders", 1] = "other@1"
    for _ in range(2):
        assert await locks.lock([Q0, Q1]) == {Q0}
    await locks.unlock([Q0, Q1])
    assert broker.locks == {("orders", 1): "other@1"}
    assert await locks.holders([Q0, Q1]) == {}


@pytest.mark.parametrize("code", CODES)
async def test_no_code_but_success_is_a_lock(
    locks: BrokerQueueLocks, broker: GroupBroker, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"lockOKMQSet":[{"topic":"orders","brokerName":"a","queueId":0}]}'
    broker.answers = dict.fromkeys((Request.LOCK_BATCH_MQ, Request.UNLOCK_BATCH_MQ), Answer(code, body=body))
    for _ in range(2):
        assert await locks.lock([Q0]) == frozenset()
        await locks.unlock([Q0])
    broker.answers.clear()
    assert await locks.lock([Q0]) == {Q0}
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("queues of c1/a cannot be locked: broker ")
    assert caplog.messages[1] == "queues of c1/a can be locked again"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"lockOKMQSet":null}',
        b'{"lockOKMQSet":"orders"}',
        b'{"lockOKMQSet":[1,null,[],{}]}',
        b'{"lockOKMQSet":[{"topic":["orders"],"brokerName":{},"queueId":0}]}',
        b'{"lockOKMQSet":[{"topic":"orders","brokerName":"a","queueId":"0"}]}',
        b'{"lockOKMQSet":[{"topic":"orders","brokerName":"other","queueId":0}]}',
    ],
)
async def test_an_answer_without_the_queue_locks_nothing(
    locks: BrokerQueueLocks, broker: GroupBroker, body: bytes
) -> None:
    broker.answers[Request.LOCK_BATCH_MQ] = Answer(body=body)
    assert await locks.lock([Q0]) == frozenset()


async def test_a_broker_that_hangs_or_is_down_keeps_no_other_from_locks(
    locks: BrokerQueueLocks, broker: GroupBroker, routes: RoutesInMemory
) -> None:
    async with GroupBroker() as hanging:
        hanging.is_hanging = True
        routes.set(routed("orders", {"a": broker.addr, "b": hanging.addr}))
        there = queue_of(0, broker_name="b")
        async with asyncio.timeout(20):
            assert await locks.lock([Q0, there]) == {Q0}
            await hanging.stop()
            assert await locks.lock([Q0, there]) == {Q0}
            await locks.unlock([Q0, there])
        assert broker.locks == {}
        await hanging.start()
