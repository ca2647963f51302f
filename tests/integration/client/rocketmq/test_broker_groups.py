"""Consumers of groups that RocketMQ's brokers coordinate, against fake brokers on sockets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pointsman.clock import SystemClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import ONE_WAY_FLAG, Command
from pointsman_client.consumer.pull_consumer import PullConsumer
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.consumer.simple_consumer import SimpleConsumer
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom, MessageModel
from pointsman_client.core.retry_rules import ConsumeResult
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.transport import CoordinatesGroups
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_client.rocketmq.groups.broker_requests import MAX_REQUESTS_PER_SECOND
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.group_broker import GroupBroker, routed
from tests.kit.broker.rocketmq.stored_messages import stored_message
from tests.kit.client.memory_group import RoutesInMemory
from tests.kit.waiting import eventually

Join = Callable[..., Awaitable[PushConsumer]]
RESET = Command(
    code=Request.RESET_CONSUMER_CLIENT_OFFSET, flag=ONE_WAY_FLAG, ext={"topic": "orders", "group": "billing"}
)


@pytest.fixture
async def broker() -> AsyncIterator[GroupBroker]:
    async with GroupBroker() as broker:
        yield broker


@pytest.fixture
def routes(broker: GroupBroker) -> RoutesInMemory:
    routes = RoutesInMemory(SystemClock())
    routes.set(routed("orders", {"a": broker.addr}))
    return routes


@pytest.fixture
def seen() -> list[str]:
    return []


@pytest.fixture
async def join(routes: RoutesInMemory, seen: list[str]) -> AsyncIterator[Join]:
    async with AsyncExitStack() as stack:

        async def join_group(**settings: Any) -> PushConsumer:
            async def listener(message: ReceivedMessage) -> None:
                seen.append(message.body.decode())

            defaults: dict[str, Any] = {
                "group": "billing",
                "subscriptions": {"orders": "*"},
                "listener": listener,
                "consume_from": ConsumeFrom.FIRST_OFFSET,
                "persist_offset_interval_seconds": 0.2,
            }
            consumer = PushConsumer(routes, transport=RocketmqTransport, **defaults | settings)
            return await stack.enter_async_context(consumer)

        yield join_group


async def put(
    broker: GroupBroker, *bodies: str, queue_id: int = 0, topic: str = "orders", age: timedelta = timedelta(0)
) -> None:
    at = int((datetime.now(UTC) - age).timestamp() * 1000)
    first = broker.logs[topic, queue_id].end
    records = [
        stored_message(body.encode(), offset=first + number, topic=topic, born_ms=at, stored_ms=at)
        for number, body in enumerate(bodies)
    ]
    await broker.append(topic, queue_id, records)


async def seen_by_no_one(_: ReceivedMessage) -> None: ...


async def asked(broker: GroupBroker, code: int, body: bytes = b"", **ext: str) -> tuple[Command, Any]:
    """Send a request of the broker, and return the reply of the only client that has the group."""
    before, connections = len(broker.replies), len(broker.peers)
    broker.push(Command(code=code, opaque=243, ext=ext), body)

    def replies() -> list[tuple[Command, Any]]:
        return [each for each in broker.replies[before:] if each[0].opaque == 243]

    await eventually(lambda: len(replies()) == connections)
    return next((each for each in replies() if each[0].code != Code.REQUEST_CODE_NOT_SUPPORTED), replies()[0])


# --- consuming ------------------------------------------------------------------------------------------------


async def test_messages_are_consumed_and_committed_and_the_member_leaves(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "0", "1")
    await put(broker, "2", queue_id=1)
    consumer = await join()
    await eventually(lambda: sorted(seen) == ["0", "1", "2"])
    await eventually(lambda: broker.offsets == {("orders", 0): 2, ("orders", 1): 1})
    await consumer.close()
    assert Request.UNREGISTER_CLIENT in broker.codes()
    assert broker.client_ids() == []
    assert not broker.locks  # A lock would send retries to the dead letters.


@pytest.mark.parametrize("make", [PushConsumer, PullConsumer])
async def test_a_consumer_whose_close_is_cancelled_leaves_the_group(
    make: type[PushConsumer | PullConsumer], routes: RoutesInMemory, broker: GroupBroker
) -> None:
    settings: dict[str, Any] = {"listener": seen_by_no_one} if make is PushConsumer else {}
    consumer = make(routes, group="billing", subscriptions="orders", transport=RocketmqTransport, **settings)
    await consumer.start()
    await eventually(lambda: broker.client_ids() == [consumer.client_id])
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await eventually(lambda: broker.client_ids() == [])


async def test_members_share_the_queues_and_take_over_those_of_one_that_left(join: Join) -> None:
    first, second = await join(), await join()

    def held(consumer: PushConsumer) -> list[int]:
        return [queue["queueId"] for queue in consumer.describe()["queues"]]

    await eventually(lambda: sorted(held(first) + held(second)) == [0, 1] and len(held(first)) == 1)
    await second.close()
    await eventually(lambda: held(first) == [0, 1])


async def test_two_groups_of_one_process_get_all_messages_each(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "0", "1")
    await join()
    await join(group="audit")
    await eventually(lambda: Counter(seen) == {"0": 2, "1": 2})
    assert (len(broker.client_ids()), len(broker.client_ids("audit"))) == (1, 1)


async def test_members_of_a_broadcasting_group_get_all_messages_and_store_offsets_themselves(
    join: Join, broker: GroupBroker, seen: list[str], tmp_path: Path
) -> None:
    await put(broker, "0", "1")
    for name in ("x", "y"):
        await join(
            message_model=MessageModel.BROADCASTING, client_id=f"{name}@1", offset_file=tmp_path / f"{name}.json"
        )
    await eventually(lambda: Counter(seen) == {"0": 2, "1": 2})
    await eventually(lambda: len(broker.client_ids()) == 2)
    assert {each["consumerDataSet"][0]["messageModel"] for each in broker.heartbeats} == {"BROADCASTING"}
    at_brokers = {Request.QUERY_CONSUMER_OFFSET, Request.UPDATE_CONSUMER_OFFSET, Request.LOCK_BATCH_MQ}
    assert not at_brokers & set(broker.codes())
    await eventually(lambda: all((tmp_path / f"{name}.json").exists() for name in "xy"))


async def test_a_topic_is_added_and_removed_while_the_consumer_runs(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, seen: list[str]
) -> None:
    async with GroupBroker() as other:
        routes.set(routed("refunds", {"b": other.addr}, queues=1))
        await put(other, "refund", topic="refunds")
        consumer = await join()
        await eventually(broker.client_ids)
        consumer.subscribe("refunds")
        await eventually(lambda: seen == ["refund"] and other.client_ids())
        consumer.unsubscribe("refunds")
        await eventually(lambda: not other.client_ids())
        await eventually(lambda: other.offsets == {("refunds", 0): 1})
        (latest,) = broker.heartbeats[-1]["consumerDataSet"]
        topics = [each["topic"] for each in latest["subscriptionDataSet"]]
        assert sorted(topics) == ["%RETRY%billing", "orders"]
        await eventually(lambda: {each["topic"] for each in consumer.describe()["queues"]} == {"orders"})


async def test_a_new_group_begins_with_messages_sent_from_now_on(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "old", age=timedelta(hours=1))
    await put(broker, "old", queue_id=1, age=timedelta(hours=1))
    await join(consume_from=ConsumeFrom.LAST_OFFSET)
    await eventually(lambda: broker.offsets == {("orders", 0): 1, ("orders", 1): 1})
    await put(broker, "new", queue_id=1)
    await eventually(lambda: seen == ["new"])


async def test_a_queue_that_was_added_while_the_group_was_stopped_is_read_from_its_start(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "before", "last", age=timedelta(hours=3))
    broker.offsets["orders", 0] = 2
    await put(broker, "added 0", "added 1", queue_id=1, age=timedelta(hours=1))
    await join(consume_from=ConsumeFrom.LAST_OFFSET)
    await eventually(lambda: seen == ["added 0", "added 1"])


async def test_a_broker_that_is_down_at_the_start_is_read_when_it_is_up(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, seen: list[str]
) -> None:
    async with GroupBroker() as late:
        await put(late, "late")
        await put(broker, "early")
        await late.stop()
        routes.set(routed("orders", {"a": broker.addr, "b": late.addr}))
        await join()
        await eventually(lambda: seen == ["early"])
        await late.start()
        await eventually(lambda: seen == ["early", "late"])


async def test_messages_are_consumed_while_connections_break(join: Join, broker: GroupBroker, seen: list[str]) -> None:
    await join()
    for number in range(20):
        await put(broker, str(number), queue_id=number % 2)
        broker.close_connections()
        await asyncio.sleep(0.05)
    await eventually(lambda: set(seen) == {str(number) for number in range(20)})
    await eventually(lambda: broker.offsets == {("orders", 0): 10, ("orders", 1): 10})
    await eventually(lambda: len(broker.client_ids()) == 1)


# --- failed messages ------------------------------------------------------------------------------------------


async def fails(_: ReceivedMessage) -> ConsumeResult:
    return ConsumeResult.RECONSUME_LATER


async def test_a_failed_message_is_sent_back_at_its_broker(join: Join, broker: GroupBroker) -> None:
    await put(broker, "bad")
    await join(listener=fails, max_reconsume_times=3)
    await eventually(lambda: broker.offsets.get(("orders", 0)) == 1)
    (back,) = broker.sent_back
    assert (back.ext["group"], back.ext["originTopic"]) == ("billing", "orders")
    assert (back.ext["delayLevel"], back.ext["maxReconsumeTimes"]) == ("0", "3")


async def test_a_message_that_its_broker_does_not_take_back_is_sent_to_the_retry_topic(
    join: Join, broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.answers[Request.CONSUMER_SEND_MSG_BACK] = Answer(Code.SYSTEM_ERROR, remark="look message by offset failed")
    await put(broker, "bad")
    await join(listener=fails)
    await eventually(lambda: broker.offsets.get(("orders", 0)) == 1)
    (kept,) = broker.delayed
    assert kept["RETRY_TOPIC"] == "orders"
    (text,) = [text for text in caplog.messages if "was not sent back" in text]
    assert "look message by offset failed" in text


async def test_an_ordered_consumer_locks_queues_and_moves_a_message_to_the_dead_letters(
    join: Join, broker: GroupBroker
) -> None:
    await put(broker, "bad", "good")
    seen: list[str] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        seen.append(message.body.decode())
        return ConsumeResult.SUSPEND if message.body == b"bad" else ConsumeResult.SUCCESS

    consumer = await join(listener=listener, ordered=True, max_reconsume_times=1)
    await eventually(lambda: seen == ["bad", "bad", "good"])
    assert set(broker.locks.values()) == {consumer.client_id}
    assert sorted(broker.locks) == [("orders", 0), ("orders", 1)]
    assert [each.ext["delayLevel"] for each in broker.sent_back] == ["-1"]
    await consumer.close()
    assert broker.locks == {}
    assert broker.offsets["orders", 0] == 2


async def test_the_queues_of_a_retry_topic_are_those_of_its_route_as_soon_as_it_has_one(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, seen: list[str]
) -> None:
    consumer = await join()
    await eventually(lambda: len(consumer.describe()["queues"]) == 2)
    await put(broker, "again", topic="%RETRY%billing")
    async with asyncio.timeout(15):  # The next rebalance without a cause would be after 20 s.
        routes.set(routed("%RETRY%billing", {"a": broker.addr}, queues=1))
        await eventually(lambda: seen == ["again"])
    await eventually(lambda: broker.offsets.get(("%RETRY%billing", 0)) == 1)


# --- requests of brokers --------------------------------------------------------------------------------------


async def test_a_reset_by_the_members_reads_again_and_moves_the_committed_offset_back(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "0", "1", "2")
    await join()
    await eventually(lambda: broker.offsets.get(("orders", 0)) == 3)
    broker.answers[Request.PULL_MESSAGE] = Answer(
        Code.PULL_NOT_FOUND, {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "3"}
    )
    broker.push(RESET, b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:1}}')
    await eventually(lambda: broker.offsets["orders", 0] == 1)
    del broker.answers[Request.PULL_MESSAGE]
    await eventually(lambda: seen == ["0", "1", "2", "1", "2"])
    await eventually(lambda: broker.offsets["orders", 0] == 3)


async def test_a_reset_of_an_ordered_queue_waits_for_the_listener(
    join: Join, broker: GroupBroker, routes: RoutesInMemory
) -> None:
    """Neither this member nor another one gets a message while the call from before the reset runs."""
    running: list[str] = []
    calls: list[str] = []
    ended = asyncio.Event()

    async def listener(message: ReceivedMessage) -> None:
        running.append(message.body.decode())
        calls.append("+".join(running))
        if message.body == b"2":
            await ended.wait()
        running.remove(message.body.decode())

    routes.set(routed("orders", {"a": broker.addr}, queues=1))
    await put(broker, "0", "1", "2")
    settings: dict[str, Any] = {"ordered": True, "listener": listener, "handover_timeout_seconds": 0.2}
    first = await join(**settings, client_id="2@1")
    await eventually(lambda: calls == ["0", "1", "2"])
    broker.push(RESET, b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:1}}')
    await eventually(lambda: broker.offsets.get(("orders", 0)) == 1)
    await join(**settings, client_id="1@1")
    await eventually(lambda: first.describe()["releasing"])
    await asyncio.sleep(0.5)
    assert calls == ["0", "1", "2"]
    ended.set()
    await eventually(lambda: calls == ["0", "1", "2", "1", "2"])


async def test_an_operator_may_reset_many_topics_in_a_second(
    join: Join, broker: GroupBroker, seen: list[str], routes: RoutesInMemory
) -> None:
    topics = [f"orders-{number}" for number in range(3 * MAX_REQUESTS_PER_SECOND)]
    for topic in topics:
        routes.set(routed(topic, {"a": broker.addr}, queues=1))
        await put(broker, topic, topic=topic)
    await join(subscriptions=dict.fromkeys(topics, "*"))
    await eventually(lambda: sorted(seen) == sorted(topics))
    for topic in topics:
        body = f'{{"offsetTable":{{{{"brokerName":"a","queueId":0,"topic":"{topic}"}}:0}}}}'
        broker.push(RESET, body.encode())
    await eventually(lambda: sorted(seen) == sorted(topics * 2))


async def test_a_reset_at_the_broker_is_reported_once_by_a_pull(
    join: Join, broker: GroupBroker, seen: list[str]
) -> None:
    await put(broker, "0", "1", "2")
    resets: list[int] = []
    pull = broker.handlers[Request.PULL_MESSAGE]

    def pulled(command: Command, body: bytes) -> Any:
        if command.ext["queueId"] == "0" and command.ext["queueOffset"] == "3" and not resets:
            resets.append(1)
            ext = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "3"}
            return Answer(Code.PULL_OFFSET_MOVED, ext, remark="OFFSET_RESET")
        return pull(command, body)

    broker.handlers[Request.PULL_MESSAGE] = pulled
    await join()
    await eventually(lambda: seen == ["0", "1", "2", "1", "2"])
    await eventually(lambda: broker.offsets["orders", 0] == 3)
    commits = [
        int(each.ext["commitOffset"])
        for each in broker.requests
        if each.code == Request.UPDATE_CONSUMER_OFFSET and each.ext["queueId"] == "0"
    ]
    assert commits[-1] == 3


async def test_a_broker_that_moves_a_queue_with_every_pull_is_asked_ever_more_rarely(
    join: Join, broker: GroupBroker, routes: RoutesInMemory, seen: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    end = {"minOffset": "7", "maxOffset": "9", "nextBeginOffset": "7"}
    later = Answer(Code.PULL_OFFSET_MOVED, end | {"minOffset": "2000000000", "nextBeginOffset": "2000000000"})
    moves = [Answer(Code.PULL_OFFSET_MOVED, end, remark="OFFSET_RESET"), Answer(Code.PULL_OFFSET_MOVED, end), later]
    async with GroupBroker() as good:
        routes.set(routed("orders", {"a": broker.addr, "good": good.addr}, queues=1))
        for number, answer in enumerate(moves):
            broker.answers[Request.PULL_MESSAGE] = answer
            caplog.clear()
            before = broker.codes().count(Request.PULL_MESSAGE)
            consumer = await join(group=f"billing-{number}")
            await broker.until_asked(Request.PULL_MESSAGE, before + 3)
            await asyncio.sleep(1.0)
            # At most 0.2 s, 0.4 s, 0.8 s and so on apart; without a pause there are a thousand in a second.
            assert broker.codes().count(Request.PULL_MESSAGE) - before < 100
            assert len(caplog.messages) < 100
            await put(good, str(number))
            await eventually(lambda number=number: seen.count(str(number)) > 0)  # type: ignore[misc]
            await consumer.close()


async def test_operators_get_the_state_of_a_consumer(join: Join, broker: GroupBroker) -> None:
    await join()
    await eventually(broker.client_ids)
    command, body = await asked(broker, Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="billing")
    assert (command.code, command.opaque) == (Code.SUCCESS, 243)
    assert b'"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"' in body
    assert b'"subscriptionSet":[{"topic":"orders","subString":"*"}]' in body


async def test_operators_get_the_state_of_a_consumer_that_leases_messages(
    routes: RoutesInMemory, broker: GroupBroker
) -> None:
    broker.answers[Request.POP_MESSAGE] = Answer(Code.POLLING_TIMEOUT)
    broker.held.add(Request.NOTIFICATION)
    settings: dict[str, Any] = {"group": "billing", "subscriptions": "orders", "transport": RocketmqTransport}
    async with SimpleConsumer(routes, consume_from=ConsumeFrom.FIRST_OFFSET, **settings) as consumer:
        receiving = asyncio.create_task(consumer.receive(timeout_seconds=60.0))
        await eventually(lambda: broker.client_ids() == [consumer.client_id])
        _, body = await asked(broker, Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="billing")
        assert b'"PROP_CONSUME_TYPE":"CONSUME_POP"' in body
        assert body.endswith(b'"mqTable":{}}')
        await consumer.close()
        assert await receiving == ()
    assert broker.client_ids() == []


async def test_an_operators_message_is_consumed_by_a_listener_of_leased_messages(
    routes: RoutesInMemory, broker: GroupBroker
) -> None:
    broker.answers[Request.POP_MESSAGE] = Answer(Code.POLLING_TIMEOUT)
    broker.answers[Request.QUERY_ASSIGNMENT] = Answer(body=b'{"messageQueueAssignments":[{"mode":"POP"}]}')
    broker.held.add(Request.NOTIFICATION)
    seen: list[bytes] = []
    async with PushConsumer(
        routes,
        group="billing",
        subscriptions="orders",
        listener=lambda message: seen.append(message.body),
        consume_mode=ConsumeMode.POP,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        transport=RocketmqTransport,
    ) as consumer:
        await eventually(lambda: broker.client_ids() == [consumer.client_id])
        message = stored_message(b"direct", offset=77)
        command, body = await asked(broker, Request.CONSUME_MESSAGE_DIRECTLY, message, consumerGroup="billing")
        assert (command.code, json.loads(body)["consumeResult"], seen) == (Code.SUCCESS, "CR_SUCCESS", [b"direct"])
        _, body = await asked(broker, Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="billing")
        assert b'"PROP_CONSUME_TYPE":"CONSUME_POP"' in body
    assert broker.client_ids() == []


async def test_an_operators_message_is_consumed(join: Join, broker: GroupBroker) -> None:
    seen: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(f"{message.body.decode()} of {message.topic} on {message.queue.broker_name}")

    await join(listener=listener)
    await eventually(broker.client_ids)
    ext = {"consumerGroup": "billing", "brokerName": "a"}  # 4.9 names no topic.
    message = stored_message(b"direct", offset=77)
    command, body = await asked(broker, Request.CONSUME_MESSAGE_DIRECTLY, message, **ext)
    assert command.code == Code.SUCCESS
    assert json.loads(body)["consumeResult"] == "CR_SUCCESS"
    assert seen == ["direct of orders on a"]
    for damaged in (b"", message[:-1], message + stored_message(b"another", offset=78), b"\x00" * 100):
        command, _ = await asked(broker, Request.CONSUME_MESSAGE_DIRECTLY, damaged, **ext)
        assert (command.code, bool(command.remark)) == (Code.SYSTEM_ERROR, True)
    assert seen == ["direct of orders on a"]


async def test_only_one_message_is_consumed_for_operators_at_a_time(join: Join, broker: GroupBroker) -> None:
    begun = asyncio.Event()

    async def listener(_: ReceivedMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    consumer = await join(listener=listener, close_timeout_seconds=1.0)
    await eventually(broker.client_ids)
    request = Command(code=Request.CONSUME_MESSAGE_DIRECTLY, opaque=1, ext={"consumerGroup": "billing"})
    broker.push(request, stored_message(b"direct"))
    async with asyncio.timeout(20):
        await begun.wait()
    command, _ = await asked(
        broker, Request.CONSUME_MESSAGE_DIRECTLY, stored_message(b"direct"), consumerGroup="billing"
    )
    assert (command.code, command.remark) == (
        Code.SYSTEM_ERROR,
        "the consumer still consumes the message of another request",
    )
    await consumer.close()


async def test_other_requests_are_refused_and_end_nothing(
    join: Join, broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await join()
    await eventually(broker.client_ids)
    command, _ = await asked(broker, Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="other")
    assert (command.code, "'other'" in str(command.remark)) == (Code.SYSTEM_ERROR, True)
    command, _ = await asked(broker, 999, consumerGroup="billing")
    assert command.code == Code.REQUEST_CODE_NOT_SUPPORTED
    replies, connections = len(broker.replies), broker.connections
    for code in (*Request, 999):
        for body in (b"", b"\xff" * 10, b'{"offsetTable":{{}:1}}'):
            for ext in ({}, {"consumerGroup": "billing"}, {"group": "billing"}):
                broker.push(Command(code=code, flag=ONE_WAY_FLAG, ext=ext), body)
    await asked(broker, Request.GET_CONSUMER_RUNNING_INFO, consumerGroup="billing")
    assert broker.connections == connections
    assert len(broker.replies) <= replies + 2  # To the last request alone: one-way requests have no replies.
    assert len(broker.client_ids()) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_flood_of_requests_costs_little_and_keeps_nothing_else_waiting(
    join: Join, broker: GroupBroker, seen: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await join()
    await eventually(broker.client_ids)
    for code in (Request.GET_CONSUMER_RUNNING_INFO, Request.CHECK_TRANSACTION_STATE):
        for _ in range(300):
            broker.push(Command(code=code, opaque=4711, ext={"consumerGroup": "billing"}))
    await put(broker, "between")
    await eventually(lambda: seen == ["between"])
    lists = broker.codes().count(Request.GET_CONSUMER_LIST_BY_GROUP)
    broker.notify()
    await eventually(lambda: broker.codes().count(Request.GET_CONSUMER_LIST_BY_GROUP) > lists)
    await eventually(lambda: [c.code for c, _ in broker.replies].count(Code.SYSTEM_BUSY) > 100)
    served = [command for command, _ in broker.replies if command.code == Code.SUCCESS]
    ignored = [text for text in caplog.messages if "state of a transaction" in text]
    # A few seconds at most on a busy machine.
    assert len(served) + len(ignored) <= 10 * MAX_REQUESTS_PER_SECOND
    assert [text for text in caplog.messages if f"requests of broker {broker.addr} are rejected: more than" in text]


def test_the_transport_decides_what_coordinates_groups() -> None:
    assert isinstance(RocketmqTransport(), CoordinatesGroups)
    assert not isinstance(MemoryTransport(), CoordinatesGroups)
