"""What every transport must do, on real Redis servers and in memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    OffsetBeyondEndError,
    ResponseCode,
)
from pointsman_client.ports.transport import PulledMessages, SendReceipt, Transport
from tests.kit.broker.under_test import (
    BORN_AT,
    QUEUE,
    READER,
    BrokersUnderTest,
    MemoryBrokers,
    RedisBrokers,
    outgoing,
)
from tests.kit.waiting import read_until

TIMEOUT_SECONDS = 30.0
EARLY_SECONDS, LONG_WAIT_SECONDS = 60.0, 300.0
"""A wait of the second length that is over within the first one was ended by what happened."""


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BrokersUnderTest]:
    found: BrokersUnderTest = MemoryBrokers() if request.param == "memory" else RedisBrokers(tmp_path)
    yield found
    await found.close()
    await asyncio.sleep(0)
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert [name for name in left if name.startswith("pointsman")] == []


async def send(
    transport: Transport,
    addr: str,
    *bodies: str,
    queue: MessageQueue = QUEUE,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> SendReceipt:
    messages = [outgoing(body, topic=queue.topic) for body in bodies]
    return await transport.send(addr, queue, messages, timeout_seconds=timeout_seconds)


async def pull(
    transport: Transport,
    addr: str,
    offset: int,
    *,
    queue: MessageQueue = QUEUE,
    wait_seconds: float = 0.0,
    max_messages: int = 32,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> PulledMessages:
    return await transport.pull(
        addr,
        queue,
        offset,
        max_messages=max_messages,
        wait_seconds=wait_seconds,
        timeout_seconds=timeout_seconds,
        reader=READER,
    )


async def bounds(transport: Transport, addr: str) -> tuple[int, int]:
    return (
        await transport.min_offset(addr, QUEUE, timeout_seconds=TIMEOUT_SECONDS),
        await transport.max_offset(addr, QUEUE, timeout_seconds=TIMEOUT_SECONDS),
    )


def bodies(pulled: PulledMessages) -> list[str]:
    return [message.body.decode() for message in pulled.messages]


def numbered(count: int) -> Sequence[str]:
    return [str(number) for number in range(count)]


async def test_offsets_begin_at_zero_and_count_by_one(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    assert await send(transport, addr, "a") == SendReceipt(SendStatus.SEND_OK, (0,))
    assert await send(transport, addr, "b", "c", "d") == SendReceipt(SendStatus.SEND_OK, (1, 2, 3))
    assert await bounds(transport, addr) == (0, 4)


async def test_a_message_is_received_as_it_was_sent(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    message = Message.unchecked("orders", b"\x00\r\n\xff", "paid", ("k1", "k2"), {"trace": "ü", "": "empty name"})
    sent = OutgoingMessage(message, "id-1", BORN_AT + timedelta(milliseconds=123), 2)
    await transport.send(addr, QUEUE, [sent], timeout_seconds=TIMEOUT_SECONDS)

    (received,) = (await pull(transport, addr, 0)).messages
    assert received.message == message
    assert (received.queue, received.queue_offset, received.message_id) == (QUEUE, 0, "id-1")
    assert (received.born_at, received.reconsume_times, received.due_at) == (sent.born_at, 2, None)


async def test_a_message_in_a_retry_queue_keeps_its_topic(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    retry = MessageQueue("%RETRY%g", "c1", "a", 0)
    await transport.send(addr, retry, [outgoing("a", topic="orders")], timeout_seconds=TIMEOUT_SECONDS)
    (received,) = (await pull(transport, addr, 0, queue=retry)).messages
    assert (received.topic, received.queue) == ("orders", retry)


async def test_a_message_in_a_retry_queue_keeps_its_delay(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    retry = MessageQueue("%RETRY%g", "c1", "a", 0)
    sent = outgoing("a", topic="orders")._replace(due_at=BORN_AT + timedelta(hours=1))
    await transport.send(addr, retry, [sent], timeout_seconds=TIMEOUT_SECONDS)
    (received,) = (await pull(transport, addr, 0, queue=retry)).messages
    assert received.due_at == sent.due_at


async def test_a_pull_returns_at_most_the_requested_number_and_the_next_one_continues(
    brokers: BrokersUnderTest,
) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, *numbered(5))
    first = await pull(transport, addr, 0, max_messages=3)
    assert (bodies(first), first.next_offset, first.trimmed) == (["0", "1", "2"], 3, 0)
    second = await pull(transport, addr, first.next_offset, max_messages=3)
    assert (bodies(second), second.next_offset) == (["3", "4"], 5)
    assert await pull(transport, addr, 5) == PulledMessages((), 5)


async def test_a_queue_never_written_is_empty(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    assert await bounds(transport, addr) == (0, 0)
    assert await pull(transport, addr, 0) == PulledMessages((), 0)
    assert await transport.offset_at(addr, QUEUE, BORN_AT, timeout_seconds=TIMEOUT_SECONDS) == 0
    with pytest.raises(OffsetBeyondEndError):
        await pull(transport, addr, 1)


async def test_an_offset_beyond_the_end_is_an_error_that_names_the_end(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a", "b")
    for wait_seconds in (0.0, 5.0):
        with pytest.raises(OffsetBeyondEndError, match="orders:queue:3 ends at 2, before offset 3") as raised:
            await pull(transport, addr, 3, wait_seconds=wait_seconds)
        assert (raised.value.offset, raised.value.end) == (3, 2)


async def test_lost_messages_show_as_an_offset_beyond_the_end(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a", "b")
    assert (await pull(transport, addr, 0)).next_offset == 2
    await brokers.lose_messages(addr)
    with pytest.raises(OffsetBeyondEndError):
        await pull(transport, addr, 2, wait_seconds=0.3)
    assert await bounds(transport, addr) == (0, 0)


async def test_trimmed_messages_are_passed_over_and_counted(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, *numbered(10))
    await brokers.trim(addr, QUEUE, 6)
    assert await bounds(transport, addr) == (6, 10)
    pulled = await pull(transport, addr, 2, max_messages=2)
    assert (bodies(pulled), pulled.next_offset, pulled.trimmed) == (["6", "7"], 8, 4)


async def test_a_queue_that_was_trimmed_empty_is_skipped_immediately(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, *numbered(10))
    await brokers.trim(addr, QUEUE, 10)
    assert await bounds(transport, addr) == (10, 10)
    async with asyncio.timeout(EARLY_SECONDS):
        assert await pull(transport, addr, 2, wait_seconds=LONG_WAIT_SECONDS) == PulledMessages((), 10, 8)
    assert (await send(transport, addr, "next")).queue_offsets == (10,)


async def test_a_queue_keeps_about_its_maximum_length(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(max_length=20), await brokers.add()
    await send(transport, addr, *numbered(100))
    first, end = await bounds(transport, addr)
    assert end == 100
    assert 70 <= first <= 80
    pulled = await pull(transport, addr, 0, max_messages=1)
    assert (bodies(pulled), pulled.trimmed) == ([str(first)], first)


async def test_a_pull_waits_for_a_message(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    waiting = asyncio.create_task(pull(transport, addr, 1, wait_seconds=LONG_WAIT_SECONDS))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await send(transport, addr, "b")
    async with asyncio.timeout(EARLY_SECONDS):
        assert bodies(await waiting) == ["b"]


async def test_a_wait_ends_empty_by_its_time(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    began = asyncio.get_running_loop().time()
    assert await pull(transport, addr, 0, wait_seconds=0.2) == PulledMessages((), 0)
    assert 0.2 <= asyncio.get_running_loop().time() - began < 20


async def test_many_queues_wait_at_the_same_time_and_new_ones_join(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    queues = [replace(QUEUE, queue_id=number) for number in range(40)]
    waiting = {}
    for queue in queues:
        waiting[queue] = asyncio.create_task(pull(transport, addr, 0, queue=queue, wait_seconds=LONG_WAIT_SECONDS))
        await asyncio.sleep(0.01)
    async with asyncio.timeout(EARLY_SECONDS):
        for queue in reversed(queues):
            await send(transport, addr, f"q{queue.queue_id}", queue=queue)
            assert bodies(await waiting.pop(queue)) == [f"q{queue.queue_id}"]
            assert not any(task.done() for task in waiting.values())


async def test_two_pulls_of_one_queue_both_get_the_message(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    waiting = [
        asyncio.create_task(pull(transport, addr, 0, wait_seconds=LONG_WAIT_SECONDS, max_messages=n)) for n in (1, 5)
    ]
    await asyncio.sleep(0.1)
    await send(transport, addr, "a", "b")
    async with asyncio.timeout(EARLY_SECONDS):
        assert [bodies(pulled)[0] for pulled in await asyncio.gather(*waiting)] == ["a", "a"]


async def test_a_cancelled_pull_leaves_no_trace(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    for round_ in range(20):
        tasks = [
            asyncio.create_task(
                pull(transport, addr, 0, queue=replace(QUEUE, queue_id=n), wait_seconds=LONG_WAIT_SECONDS)
            )
            for n in range(5)
        ]
        await asyncio.sleep(0.001 * round_)
        for task in tasks:
            task.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True)
        )
    waiting = asyncio.create_task(pull(transport, addr, 0, wait_seconds=LONG_WAIT_SECONDS))
    await asyncio.sleep(0.05)
    await send(transport, addr, "a")
    async with asyncio.timeout(EARLY_SECONDS):
        assert bodies(await waiting) == ["a"]


async def test_waiting_pulls_that_are_cancelled_at_random_miss_and_repeat_nothing(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    rng = random.Random(7)
    queues = [replace(QUEUE, queue_id=number) for number in range(6)]
    read: dict[MessageQueue, list[str]] = {queue: [] for queue in queues}

    async def consume(queue: MessageQueue) -> None:
        while len(read[queue]) < 60:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rng.choice((0.001, 0.003, 0.01, EARLY_SECONDS))):
                    offset = len(read[queue])
                    pulled = await pull(
                        transport, addr, offset, queue=queue, wait_seconds=LONG_WAIT_SECONDS, max_messages=3
                    )
                    assert [message.queue_offset for message in pulled.messages] == [*range(offset, pulled.next_offset)]
                    read[queue] += bodies(pulled)

    async def produce() -> None:
        for number in range(60):
            for queue in rng.sample(queues, len(queues)):
                await send(transport, addr, str(number), queue=queue)
                await asyncio.sleep(rng.choice((0, 0, 0.002)))

    async with asyncio.timeout(EARLY_SECONDS):
        await asyncio.gather(produce(), *map(consume, queues))
    assert all(texts == numbered(60) for texts in read.values())


async def test_cancelled_sends_do_not_mix_up_the_responses_of_others(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    tasks = [asyncio.create_task(send(transport, addr, str(number))) for number in range(200)]
    await asyncio.sleep(0.002)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    pulled = await pull(transport, addr, 0, max_messages=1000)
    at: dict[int | None, str] = {message.queue_offset: message.body.decode() for message in pulled.messages}
    for number, result in enumerate(results):
        if isinstance(result, SendReceipt):
            assert at[result.queue_offsets[0]] == str(number)
        else:
            assert isinstance(result, asyncio.CancelledError)


async def test_concurrent_batches_stay_contiguous_and_in_order(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    receipts = await asyncio.gather(*(send(transport, addr, f"{n}a", f"{n}b", f"{n}c") for n in range(50)))
    for receipt in receipts:
        first = receipt.queue_offsets[0]
        assert first is not None
        assert receipt.queue_offsets == (first, first + 1, first + 2)
    texts = bodies(await pull(transport, addr, 0, max_messages=1000))
    assert len(texts) == 150
    assert all(texts[at][:-1] == texts[at + 1][:-1] == texts[at + 2][:-1] for at in range(0, 150, 3))


async def test_the_offset_of_a_time_is_that_of_the_first_message_born_then_or_later(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    for minute in range(30):
        message = outgoing(str(minute), born_at=BORN_AT + timedelta(minutes=minute))
        await transport.send(addr, QUEUE, [message], timeout_seconds=TIMEOUT_SECONDS)
    await brokers.trim(addr, QUEUE, 4)
    for minutes, offset in ((-5.0, 4), (4.0, 4), (4.5, 5), (17.0, 17), (29.0, 29), (29.5, 30)):
        at = BORN_AT + timedelta(minutes=minutes)
        assert await transport.offset_at(addr, QUEUE, at, timeout_seconds=TIMEOUT_SECONDS) == offset


async def test_a_broker_that_is_down_cannot_be_reached_until_it_is_back_with_its_messages(
    brokers: BrokersUnderTest,
) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    waiting = asyncio.create_task(pull(transport, addr, 1, wait_seconds=LONG_WAIT_SECONDS))
    await asyncio.sleep(0.1)
    await brokers.take_down(addr)
    with pytest.raises(BrokerUnreachableError):
        async with asyncio.timeout(EARLY_SECONDS):
            await waiting
    for _ in range(2):
        with pytest.raises(BrokerUnreachableError):
            await send(transport, addr, "b")
        with pytest.raises(BrokerUnreachableError):
            await pull(transport, addr, 0, wait_seconds=5)
        with pytest.raises(BrokerUnreachableError):
            await bounds(transport, addr)
    await brokers.bring_up(addr)
    assert (await send(transport, addr, "b")).queue_offsets == (1,)
    assert bodies(await pull(transport, addr, 0)) == ["a", "b"]


async def test_the_first_call_after_a_restart_works(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await pull(transport, addr, 0)
    await brokers.take_down(addr)
    await brokers.bring_up(addr)
    assert bodies(await pull(transport, addr, 0)) == ["a"]
    assert (await send(transport, addr, "b")).queue_offsets == (1,)


async def test_every_call_ends_by_its_timeout_when_the_broker_hangs(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    await pull(transport, addr, 0, wait_seconds=0.01)
    await brokers.hang(addr)
    loop = asyncio.get_running_loop()
    for _ in range(2):  # the second time on a connection that cannot be made
        for call in (
            lambda: send(transport, addr, "b", timeout_seconds=0.1),
            lambda: pull(transport, addr, 0, timeout_seconds=0.1),
            lambda: pull(transport, addr, 1, wait_seconds=0.1, timeout_seconds=0.1),
            lambda: transport.max_offset(addr, QUEUE, timeout_seconds=0.1),
            lambda: transport.offset_at(addr, QUEUE, BORN_AT, timeout_seconds=0.1),
        ):
            began = loop.time()
            with pytest.raises((BrokerTimeoutError, BrokerUnreachableError)):
                await call()
            assert loop.time() - began < TIMEOUT_SECONDS / 3
    await brokers.bring_up(addr)
    await send(transport, addr, "c")  # "b" waits in an earlier connection: the broker may take it after this one
    assert "c" in bodies(await pull(transport, addr, 0))


async def test_a_broker_that_hangs_while_a_pull_waits_makes_it_fail(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    waiting = asyncio.create_task(pull(transport, addr, 0, wait_seconds=0.5, timeout_seconds=0.3))
    await asyncio.sleep(0.1)
    await brokers.hang(addr)
    with pytest.raises(BrokerError):
        async with asyncio.timeout(EARLY_SECONDS):
            await waiting


async def test_a_replica_serves_reads_and_accepts_no_messages(brokers: BrokersUnderTest) -> None:
    transport, master, slave = brokers.open(), await brokers.add(), await brokers.add()
    await send(transport, master, "a", "b")
    await brokers.replicate(master, slave)
    waiting = asyncio.create_task(pull(transport, slave, 2, wait_seconds=LONG_WAIT_SECONDS))
    await asyncio.sleep(0.1)
    await send(transport, master, "c")
    async with asyncio.timeout(EARLY_SECONDS):
        assert bodies(await waiting) == ["c"]
    assert bodies(await pull(transport, slave, 0)) == ["a", "b", "c"]
    assert await bounds(transport, slave) == (0, 3)
    with pytest.raises(BrokerRefusedError, match="send to the master") as raised:
        await send(transport, slave, "d")
    assert raised.value.response_code == ResponseCode.NO_PERMISSION
    await brokers.take_down(master)
    assert bodies(await pull(transport, slave, 0)) == ["a", "b", "c"]


async def test_a_promoted_replica_continues_where_its_master_ended(brokers: BrokersUnderTest) -> None:
    transport, master, slave = brokers.open(), await brokers.add(), await brokers.add()
    await send(transport, master, "a", "b")
    await brokers.replicate(master, slave)
    await brokers.take_down(master)
    await brokers.promote(slave)
    assert (await send(transport, slave, "c")).queue_offsets == (2,)
    await brokers.bring_up(master)
    await brokers.replicate(slave, master)
    assert bodies(await pull(transport, master, 0)) == ["a", "b", "c"]


async def test_the_status_shows_whether_enough_replicas_have_the_message(brokers: BrokersUnderTest) -> None:
    transport, master, slave = brokers.open(wait_replicas=1), await brokers.add(), await brokers.add()
    assert (await send(transport, master, "a")).status is SendStatus.SLAVE_NOT_AVAILABLE
    await brokers.replicate(master, slave)
    await send(transport, master, "b")
    await read_until(
        lambda: send(transport, master, "c"), lambda found: found.status is SendStatus.SEND_OK, seconds=EARLY_SECONDS
    )
    statuses = {(await send(transport, master, "d", "e")).status for _ in range(10)}
    assert statuses == {SendStatus.SEND_OK}


async def test_a_broker_that_was_dropped_can_be_used_again(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    await send(transport, addr, "a")
    waiting = asyncio.create_task(pull(transport, addr, 1, wait_seconds=LONG_WAIT_SECONDS))
    await asyncio.sleep(0.05)
    transport.forget(addr)
    transport.forget("10.9.9.9:6379")
    await send(transport, addr, "b")
    async with asyncio.timeout(EARLY_SECONDS):
        assert bodies(await waiting) == ["b"]


async def test_closing_ends_pending_and_later_calls_in_bounded_time(brokers: BrokersUnderTest) -> None:
    transport, addr = brokers.open(), await brokers.add()
    hanging = await brokers.add()
    await send(transport, addr, "a")
    await send(transport, hanging, "a")
    await brokers.hang(hanging)
    waiting = [
        asyncio.create_task(pull(transport, addr, 1, wait_seconds=LONG_WAIT_SECONDS)),
        asyncio.create_task(send(transport, hanging, "b", timeout_seconds=LONG_WAIT_SECONDS)),
        asyncio.create_task(pull(transport, hanging, 1, wait_seconds=LONG_WAIT_SECONDS)),
    ]
    await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        await transport.close()
        await transport.close()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [ClientClosedError] * 3
    with pytest.raises(ClientClosedError):
        await send(transport, addr, "c")
