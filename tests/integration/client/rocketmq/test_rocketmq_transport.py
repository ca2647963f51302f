"""The transport for RocketMQ brokers against a fake one: what every transport does, and what is RocketMQ's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import BINARY_FORM
from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    InvalidMessageError,
    OffsetBeyondEndError,
    UnreadableMessageError,
)
from pointsman_client.ports.transport import (
    ChecksMessages,
    PulledMessages,
    Reader,
    SendReceipt,
    SendsBack,
    SendsOneWay,
    Transport,
)
from pointsman_client.rocketmq import RocketmqTransport
from tests.integration.client.transports import test_transport_contract
from tests.integration.client.transports.test_transport_contract import TIMEOUT_SECONDS, bodies, pull, send
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker, Log
from tests.kit.broker.rocketmq.stored_messages import batch_record, property_map, stored_message, text_of
from tests.kit.broker.under_test import BORN_AT, QUEUE, BrokersUnderTest, outgoing, shared_tests
from tests.kit.waiting import eventually

WITHOUT = {
    # Other words, or fields that RocketMQ has not: with tests below.
    "test_a_message_is_received_as_it_was_sent",
    "test_a_message_in_a_retry_queue_keeps_its_delay",
    "test_an_offset_beyond_the_end_is_an_error_that_names_the_end",
    "test_trimmed_messages_are_passed_over_and_counted",
    # What brokers keep, and their replicas, are no matter of the transport.
    "test_a_queue_keeps_about_its_maximum_length",
    "test_a_replica_serves_reads_and_accepts_no_messages",
    "test_the_status_shows_whether_enough_replicas_have_the_message",
}
globals().update(shared_tests(test_transport_contract, without=WITHOUT))


class FakeBrokers:
    """Implements :class:`BrokersUnderTest`."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._brokers: dict[str, FakeBroker] = {}
        self.transport = RocketmqTransport()

    def open(self, **settings: Any) -> Transport:
        self.transport = RocketmqTransport(**settings)
        return self.transport

    async def add(self) -> str:
        broker = FakeBroker(version=self._version, grid_seconds=0.2)
        broker.form = BINARY_FORM if self._version == 407 else broker.form
        await broker.start()
        self._brokers[broker.addr] = broker
        return broker.addr

    async def take_down(self, addr: str) -> None:
        await self._brokers[addr].stop()

    async def hang(self, addr: str) -> None:
        self._brokers[addr].is_hanging = True

    async def bring_up(self, addr: str) -> None:
        broker = self._brokers[addr]
        if not broker.is_hanging:
            await broker.start()
        broker.is_hanging = False

    async def lose_messages(self, addr: str) -> None:
        self._brokers[addr].logs.clear()

    async def replicate(self, master: str, slave: str) -> None:
        self._brokers[slave].logs = self._brokers[master].logs
        self._brokers[slave].master = self._brokers[master]
        self._brokers[master].master = None

    async def promote(self, addr: str) -> None:
        self._brokers[addr].master = None

    async def trim(self, addr: str, queue: MessageQueue, first: int) -> None:
        log = self._brokers[addr].logs[queue.topic, queue.queue_id]
        self._brokers[addr].logs[queue.topic, queue.queue_id] = Log(first, log.records[first - log.first :])

    async def close(self) -> None:
        await self.transport.close()
        for broker in self._brokers.values():
            await broker.stop()


@pytest.fixture(params=[479, 407])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[BrokersUnderTest]:
    found = FakeBrokers(request.param)
    yield found
    await found.close()
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert [name for name in left if name.startswith("pointsman")] == []


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker(grid_seconds=0.2) as broker:
        yield broker


@pytest.fixture
async def transport() -> AsyncIterator[RocketmqTransport]:
    transport = RocketmqTransport()
    yield transport
    await transport.close()


def test_it_is_a_transport_that_sends_back_and_one_way(transport: RocketmqTransport) -> None:
    checked: Transport = transport
    assert isinstance(checked, SendsBack)
    assert isinstance(checked, SendsOneWay)
    assert isinstance(checked, ChecksMessages)


# --- sending --------------------------------------------------------------------------------------------------


async def test_a_message_is_received_as_it_was_sent(transport: RocketmqTransport, broker: FakeBroker) -> None:
    message = Message("orders", b"\x00\r\n\xff" * 2_000, "paid", ("k1", "k2"), {"trace": "ü"})
    sent = OutgoingMessage(message, "id-1", BORN_AT + timedelta(milliseconds=123), 2)
    await transport.send(broker.addr, QUEUE, [sent], timeout_seconds=TIMEOUT_SECONDS)
    (received,) = (await pull(transport, broker.addr, 0)).messages
    assert received.message == message
    assert (received.queue, received.queue_offset, received.message_id) == (QUEUE, 0, "id-1")
    assert (received.born_at, received.reconsume_times, received.due_at) == (sent.born_at, 2, None)
    assert received.offset_message_id == "7F00000100002A9F0000000000000000"


async def test_a_large_message_is_encoded_and_decoded_in_a_thread(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    message = OutgoingMessage(Message("orders", bytes(range(256)) * 8_192), "id-1", BORN_AT)
    await transport.send(broker.addr, QUEUE, [message], timeout_seconds=TIMEOUT_SECONDS)
    await broker.append("orders", 3, [stored_message(bytes(700_000), offset=1)])
    pulled = await pull(transport, broker.addr, 0)
    assert [len(each.body) for each in pulled.messages] == [2_097_152, 700_000]


async def test_no_call_waits_for_a_thread_beyond_its_timeout(transport: RocketmqTransport, broker: FakeBroker) -> None:
    large = OutgoingMessage(Message("orders", bytes(range(256)) * 1_024), "id-1", BORN_AT)
    await broker.append("orders", 3, [stored_message(bytes(200_000))])
    released = threading.Event()
    executor = ThreadPoolExecutor(max_workers=1)
    asyncio.get_running_loop().set_default_executor(executor)
    try:
        executor.submit(released.wait, 60)
        with pytest.raises(BrokerUnreachableError, match="no thread was free in time"):
            await transport.send(broker.addr, QUEUE, [large], timeout_seconds=0.05)
        assert broker.requests == []
        with pytest.raises(BrokerTimeoutError, match="no thread was free in time"):
            await transport.pull(
                broker.addr,
                QUEUE,
                0,
                max_messages=1,
                wait_seconds=0.0,
                timeout_seconds=0.5,
                reader=Reader("billing"),
            )
    finally:
        released.set()
    assert len((await pull(transport, broker.addr, 0)).messages) == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (Code.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (Code.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_the_status_of_a_send_is_the_brokers(
    transport: RocketmqTransport, broker: FakeBroker, code: Code, status: SendStatus
) -> None:
    broker.answers[Request.SEND_MESSAGE_V2] = Answer(code, {"queueOffset": "7"})
    receipt = await send(transport, broker.addr, "a")
    assert (receipt.status, receipt.queue_offsets) == (status, (7,))


@pytest.mark.parametrize("code", [1, 2, 3, 13, 14, 16, 17, 20, 23, 24, 26, 29, 204, 205, 999, 1500])
async def test_every_other_code_is_a_refusal_that_names_it(
    transport: RocketmqTransport, broker: FakeBroker, code: int
) -> None:
    broker.answers[Request.SEND_MESSAGE_V2] = Answer(code, remark="the broker's reason")
    with pytest.raises(BrokerRefusedError, match=f"{code}: the broker's reason") as refused:
        await send(transport, broker.addr, "a")
    assert refused.value.response_code == code


async def test_a_response_without_its_fields_is_a_refusal(transport: RocketmqTransport, broker: FakeBroker) -> None:
    broker.answers[Request.SEND_MESSAGE_V2] = Answer(0, {"queueOffset": "many"})
    with pytest.raises(BrokerRefusedError, match="queueOffset of its response is 'many', which is not a number"):
        await send(transport, broker.addr, "a")


async def test_one_way_sends_wait_for_nothing(transport: RocketmqTransport, broker: FakeBroker) -> None:
    broker.dropped.add(Request.SEND_MESSAGE_V2)
    await transport.send_one_way(broker.addr, QUEUE, [outgoing("a")], timeout_seconds=TIMEOUT_SECONDS)
    await transport.send_one_way(broker.addr, QUEUE, [outgoing("b"), outgoing("c")], timeout_seconds=TIMEOUT_SECONDS)
    await eventually(lambda: broker.logs["orders", 3].end == 3)
    assert {command.flag for command in broker.requests} == {2}


@pytest.mark.parametrize(("version", "name"), [(479, "TIMER_DELIVER_MS"), (407, "DELAY")])
async def test_a_delay_is_what_the_brokers_version_knows(version: int, name: str) -> None:
    clock = ManualClock(utc=BORN_AT)
    transport = RocketmqTransport(clock=clock)
    async with FakeBroker(version=version) as broker:
        message = outgoing("a", due_at=BORN_AT + timedelta(seconds=10))
        for _ in range(2):
            receipt = await transport.send(broker.addr, QUEUE, [message], timeout_seconds=TIMEOUT_SECONDS)
            assert receipt == SendReceipt(SendStatus.SEND_OK, (None,))
        await transport.close()
        value = {"DELAY": "3", "TIMER_DELIVER_MS": "1767225610000"}[name]
        assert [properties[name] for properties in broker.delayed] == [value, value]
        assert broker.codes() == [Request.GET_MIN_OFFSET, Request.SEND_MESSAGE_V2, Request.SEND_MESSAGE_V2]


@pytest.mark.parametrize(("before", "after", "name"), [(479, 407, "DELAY"), (407, 479, "TIMER_DELIVER_MS")])
async def test_a_delay_is_what_a_broker_knows_after_a_restart_in_another_version(
    transport: RocketmqTransport, broker: FakeBroker, before: int, after: int, name: str
) -> None:
    broker.version = before
    await send(transport, broker.addr, "a")
    await broker.stop()
    await eventually(lambda: transport._links[broker.addr].connection is None)
    broker.version = after
    await broker.start()
    message = outgoing("b", due_at=datetime.now(UTC) + timedelta(minutes=10))
    await transport.send(broker.addr, QUEUE, [message], timeout_seconds=TIMEOUT_SECONDS)
    (properties,) = broker.delayed
    assert name in properties


async def test_a_delay_that_the_broker_rejects_is_an_invalid_message(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    remark = "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or ..."
    broker.answers[Request.SEND_MESSAGE_V2] = Answer(Code.MESSAGE_ILLEGAL, remark=remark)
    far = datetime(2126, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidMessageError, match=r"deliver_at '2126-01-01T00:00:00\+00:00' is rejected .*259200000ms"):
        await transport.send(broker.addr, QUEUE, [outgoing("a", due_at=far)], timeout_seconds=TIMEOUT_SECONDS)
    broker.answers[Request.SEND_MESSAGE_V2] = Answer(Code.MESSAGE_ILLEGAL, remark="the message body size over max")
    with pytest.raises(BrokerRefusedError, match="body size"):
        await transport.send(broker.addr, QUEUE, [outgoing("a", due_at=far)], timeout_seconds=TIMEOUT_SECONDS)


async def test_a_failed_message_is_sent_to_the_retry_topic_with_its_own_topic(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    retry = MessageQueue("%RETRY%g", "c1", "a", 0)
    message = outgoing("a", origin="c1/a/orders/3@5", reconsume_times=1)
    await transport.send(broker.addr, retry, [message], timeout_seconds=TIMEOUT_SECONDS)
    properties = property_map(broker.requests[0].ext["i"])
    assert (properties["RETRY_TOPIC"], broker.requests[0].ext["j"]) == ("orders", "1")
    (received,) = (await pull(transport, broker.addr, 0, queue=retry)).messages
    assert (received.topic, received.origin) == ("orders", "c1/a/orders/3@5")


async def test_what_the_broker_would_lose_is_refused_before_it_is_sent(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    message = OutgoingMessage(Message("orders", b"a", properties={"DELAY": "3"}), "id", BORN_AT)
    with pytest.raises(InvalidMessageError, match="DELAY"):
        await transport.send(broker.addr, QUEUE, [message], timeout_seconds=TIMEOUT_SECONDS)
    assert broker.requests == []


# --- pulling --------------------------------------------------------------------------------------------------


async def test_a_pull_names_its_reader(transport: RocketmqTransport, broker: FakeBroker) -> None:
    reader = Reader("billing", "paid || refunded")
    await transport.pull(
        broker.addr, QUEUE, 0, max_messages=5, wait_seconds=0, timeout_seconds=TIMEOUT_SECONDS, reader=reader
    )
    assert broker.requests[0].ext == {
        "consumerGroup": "billing", "topic": "orders", "queueId": "3", "queueOffset": "0", "maxMsgNums": "5",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "paid || refunded",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


async def test_a_long_wait_is_the_brokers_and_ends_before_it_is_over(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    async with asyncio.timeout(5):
        assert await pull(transport, broker.addr, 0, wait_seconds=5.5) == PulledMessages((), 0)
    (command,) = broker.requests
    assert (command.ext["sysFlag"], 0 < int(command.ext["suspendTimeoutMillis"]) <= 500) == ("6", True)


async def test_a_wait_that_is_longer_than_a_broker_holds_a_request_is_several(
    transport: RocketmqTransport, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pointsman_client.rocketmq.rocketmq_transport.MAX_SUSPEND_SECONDS", 0.6)
    waiting = asyncio.create_task(pull(transport, broker.addr, 0, wait_seconds=60))
    await broker.until_asked(Request.PULL_MESSAGE, 3)
    await send(transport, broker.addr, "a")
    async with asyncio.timeout(30):
        assert bodies(await waiting) == ["a"]
    assert {command.ext.get("suspendTimeoutMillis", "600") for command in broker.requests} == {"600"}


async def test_a_short_wait_is_abandoned_and_its_late_answer_dropped(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    broker.grid_seconds = 5.0
    assert await pull(transport, broker.addr, 0, wait_seconds=0.05) == PulledMessages((), 0)
    assert [command.ext["sysFlag"] for command in broker.requests] == ["6", "4"]
    await send(transport, broker.addr, "a")
    assert bodies(await pull(transport, broker.addr, 0)) == ["a"]
    assert broker.connections == 1


async def test_a_broker_that_does_not_hold_a_pull_is_not_asked_in_a_hot_loop(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    broker.answers[Request.PULL_MESSAGE] = Answer(
        Code.PULL_RETRY_IMMEDIATELY, {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "0"}
    )
    assert await pull(transport, broker.addr, 0, wait_seconds=1.2) == PulledMessages((), 0)
    assert 2 <= len(broker.requests) <= 4


@pytest.mark.parametrize("code", [Code.PULL_RETRY_IMMEDIATELY, Code.PULL_NOT_FOUND])
async def test_messages_that_the_broker_filtered_or_lost_are_passed_over(
    transport: RocketmqTransport, broker: FakeBroker, code: Code
) -> None:
    broker.answers[Request.PULL_MESSAGE] = Answer(code, {"nextBeginOffset": "40"})
    assert await pull(transport, broker.addr, 8, wait_seconds=60) == PulledMessages((), 40)


async def test_an_offset_beyond_the_end_is_an_error_that_names_the_end(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    await send(transport, broker.addr, "a", "b")
    for wait_seconds in (0.0, 20.0):
        with pytest.raises(
            OffsetBeyondEndError, match="queue 3 of orders on c1/a ends at 2, before offset 3"
        ) as raised:
            await pull(transport, broker.addr, 3, wait_seconds=wait_seconds)
        assert (raised.value.offset, raised.value.end) == (3, 2)


async def test_trimmed_messages_are_passed_over_and_counted(transport: RocketmqTransport, broker: FakeBroker) -> None:
    await send(transport, broker.addr, *map(str, range(10)))
    broker.logs["orders", 3] = Log(6, broker.logs["orders", 3].records[6:])
    assert await pull(transport, broker.addr, 2, wait_seconds=60) == PulledMessages((), 6, trimmed=4)
    assert bodies(await pull(transport, broker.addr, 6)) == ["6", "7", "8", "9"]


@pytest.mark.parametrize("offset", [5, 40])
async def test_an_operators_reset_moves_both_ways(
    transport: RocketmqTransport, broker: FakeBroker, offset: int
) -> None:
    fields = {"nextBeginOffset": "20", "minOffset": "0", "maxOffset": "30"}
    broker.answers[Request.PULL_MESSAGE] = Answer(Code.PULL_OFFSET_MOVED, fields, remark="OFFSET_RESET")
    assert await pull(transport, broker.addr, offset, wait_seconds=60) == PulledMessages((), 20, is_reset=True)


async def test_a_message_that_cannot_be_read_is_an_error_after_those_before_it(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    await broker.append("orders", 3, [stored_message(b"a"), stored_message(b"b", offset=1, crc=1)])
    first = await pull(transport, broker.addr, 0)
    assert (bodies(first), first.next_offset) == (["a"], 1)
    with pytest.raises(UnreadableMessageError, match="at offset 1 of queue 3 of orders on c1/a") as raised:
        await pull(transport, broker.addr, 1)
    assert raised.value.offset == 1


async def test_a_pull_from_the_middle_of_a_batch_brings_its_rest(
    transport: RocketmqTransport, broker: FakeBroker
) -> None:
    inner = b"".join(batch_record(body, text_of({"TAGS": "t"})) for body in (b"a", b"b"))
    body = stored_message(inner, sys_flag=0xC0)
    broker.answers[Request.PULL_MESSAGE] = Answer(0, {"nextBeginOffset": "2"}, body)
    pulled = await pull(transport, broker.addr, 1)
    assert (bodies(pulled), pulled.next_offset) == (["b"], 2)


@pytest.mark.parametrize("code", [1, 2, 16, 17, 23, 24, 25, 26, 27, 28, 29])
async def test_a_refused_pull_names_its_code(transport: RocketmqTransport, broker: FakeBroker, code: int) -> None:
    broker.answers[Request.PULL_MESSAGE] = Answer(code)
    with pytest.raises(BrokerRefusedError, match=f"{code}: no reason given") as refused:
        await pull(transport, broker.addr, 0)
    assert refused.value.response_code == code


# --- the rest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [479, 407])
@pytest.mark.parametrize("count", [0, 1, 40])
async def test_a_search_by_time_is_exact_where_many_messages_have_one_time(version: int, count: int) -> None:
    transport = RocketmqTransport()
    async with FakeBroker(version=version) as broker:
        times = [0] * count + [1_000] * count + [5_000] * count
        records = [stored_message(b"a", offset=at, stored_ms=1_767_225_600_000 + ms) for at, ms in enumerate(times)]
        await broker.append("orders", 3, records)
        for ms in (-1, 0, 1, 999, 1_000, 1_001, 4_999, 5_000, 5_001):
            at = BORN_AT + timedelta(milliseconds=ms)
            found = await transport.offset_at(broker.addr, QUEUE, at, timeout_seconds=TIMEOUT_SECONDS)
            assert found == sum(each < ms for each in times), ms
        await transport.close()


async def test_a_message_is_sent_back_by_its_place_in_the_log(transport: RocketmqTransport, broker: FakeBroker) -> None:
    await send(transport, broker.addr, "a", "b")
    message = (await pull(transport, broker.addr, 0)).messages[1]
    await transport.send_back(
        broker.addr, message, group="billing", max_reconsume_times=16, timeout_seconds=TIMEOUT_SECONDS
    )
    (command,) = broker.sent_back
    assert command.ext == {
        "offset": "1000", "group": "billing", "delayLevel": "0", "originMsgId": message.offset_message_id,
        "originTopic": "orders", "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip
    broker.answers[Request.CONSUMER_SEND_MSG_BACK] = Answer(1, remark="look message by offset failed, 1000")
    with pytest.raises(BrokerRefusedError, match="look message by offset failed"):
        await transport.send_back(
            broker.addr, message, group="billing", max_reconsume_times=16, delay_level=-1, timeout_seconds=1
        )
    with pytest.raises(InvalidMessageError, match="offset_message_id"):
        await transport.send_back(
            broker.addr, message._replace(offset_message_id=""), group="g", max_reconsume_times=1, timeout_seconds=1
        )


async def test_refused_offsets_name_their_code(transport: RocketmqTransport, broker: FakeBroker) -> None:
    for code in (Request.GET_MIN_OFFSET, Request.GET_MAX_OFFSET, Request.SEARCH_OFFSET_BY_TIMESTAMP):
        broker.answers[code] = Answer(Code.SYSTEM_ERROR, remark="no")
    for call in (
        transport.min_offset(broker.addr, QUEUE, timeout_seconds=1),
        transport.max_offset(broker.addr, QUEUE, timeout_seconds=1),
        transport.offset_at(broker.addr, QUEUE, BORN_AT, timeout_seconds=1),
    ):
        with pytest.raises(BrokerRefusedError, match="SYSTEM_ERROR 1: no"):
            await call


async def test_forgotten_brokers_are_disconnected(transport: RocketmqTransport, broker: FakeBroker) -> None:
    await send(transport, broker.addr, "a")
    transport.forget(broker.addr)
    await eventually(lambda: not broker.peers)
    transport.forget("10.9.9.9:10911")
    assert transport._links == {}
    await send(transport, broker.addr, "b")


async def test_a_broken_connection_fails_a_send_and_no_read(transport: RocketmqTransport, broker: FakeBroker) -> None:
    await send(transport, broker.addr, "a")
    broker.held |= {Request.SEND_MESSAGE_V2, Request.GET_MAX_OFFSET}
    sending = asyncio.create_task(send(transport, broker.addr, "b"))
    reading = asyncio.create_task(transport.max_offset(broker.addr, QUEUE, timeout_seconds=TIMEOUT_SECONDS))
    await broker.until_held(2)
    broker.held.clear()
    broker.close_connections()
    with pytest.raises(BrokerTimeoutError):
        await sending
    assert await reading == 2


async def test_closed_means_closed(transport: RocketmqTransport, broker: FakeBroker) -> None:
    waiting = asyncio.create_task(pull(transport, broker.addr, 0, wait_seconds=60))
    await broker.until_asked(Request.PULL_MESSAGE)
    await transport.close()
    await transport.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: waiting,
        lambda: send(transport, broker.addr, "a"),
        lambda: pull(transport, broker.addr, 0),
        lambda: transport.max_offset(broker.addr, QUEUE, timeout_seconds=1),
    ]
    for call in calls:
        with pytest.raises(ClientClosedError):
            await call()
