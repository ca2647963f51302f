"""Values instead of bodies: encoded by the producer, decoded by each kind of consumer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from pointsman_client import (
    ConsumeMode,
    ConsumeResult,
    InvalidMessageError,
    InvalidOptionError,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Reject,
    TransactionProducer,
    TransactionState,
    UndecodableMessageError,
    sync,
)
from pointsman_client.core.retry_rules import Outcome
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.coordination import Coordination, CoordinationRequest
from tests.kit.client.consumer_setup import Setup
from tests.kit.client.memory_group import addr_of, queue_of
from tests.kit.waiting import eventually

Q0 = queue_of(0)
DEAD = queue_of(0, topic="%DLQ%billing")


class Json:
    """A serializer, and how often it decoded each body."""

    def __init__(self) -> None:
        self.decoded: list[bytes] = []

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, body: bytes) -> Any:
        self.decoded.append(body)
        return json.loads(body)


def producer(setup: Setup, **more: Any) -> Producer:
    return Producer(setup.routes, transport=setup.brokers.transport, clock=setup.clock, **more)


async def test_a_value_is_sent_with_all_fields_of_a_message_and_decoded_for_the_listener(setup: Setup) -> None:
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    await setup.join("x", listener, serializer=Json())
    async with producer(setup, serializer=Json()) as sending:
        message = sending.message("orders", {"n": 1}, tags="paid", keys=("k",), properties={"a": "b"})
        await sending.send(message)
        await sending.send_by_key(sending.message("orders", None), "customer-9")
        await sending.send_batch([sending.message("orders", [n]) for n in range(2)])
    await setup.until(lambda: len(seen) == 4)
    assert (message.body, message.tags, message.keys, message.properties) == (b'{"n": 1}', "paid", ("k",), {"a": "b"})
    assert [each.value for each in seen if each.keys] == [{"n": 1}]
    assert sorted(map(str, (each.value for each in seen))) == ["None", "[0]", "[1]", "{'n': 1}"]


async def test_a_value_that_the_serializer_refuses_is_not_sent(setup: Setup) -> None:
    with pytest.raises(InvalidMessageError, match=r"value cannot be encoded \(TypeError\), got object"):
        producer(setup, serializer=Json()).message("orders", object())
    with pytest.raises(InvalidOptionError, match="serializer = None must be set"):
        producer(setup).message("orders", 1)


@pytest.mark.parametrize("is_plain", [False, True])
async def test_an_undecodable_message_is_retried_and_then_a_dead_letter_without_a_call(
    setup: Setup, is_plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    dead: list[tuple[ReceivedMessage, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.value)

    def plain(message: ReceivedMessage) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(message.value)

    await setup.brokers.put(Q0, ["1", "{", "2"])
    await setup.join(
        "x",
        plain if is_plain else listener,
        serializer=Json(),
        max_reconsume_times=1,
        on_dead_letter=lambda *letter: dead.append(letter),
    )
    await setup.until(lambda: dead)
    assert sorted(seen) == [1, 2]
    reason = "UndecodableMessageError: the body of message id-{ cannot be decoded: JSONDecodeError: Expecting property"
    assert dead[0][1].startswith(reason)
    assert isinstance(dead[0][0].decode_error, UndecodableMessageError)
    assert setup.hook.destinations == {"retry": 1, "dlq": 1}
    (letter,) = await stored(setup)
    assert letter.error.startswith(reason)
    assert letter.body == b"{"
    assert "the listener failed on message id-{" in caplog.text


async def stored(setup: Setup) -> tuple[ReceivedMessage, ...]:
    pulled = await setup.brokers.transport.pull(
        addr_of("a"), DEAD, 0, max_messages=32, wait_seconds=0, timeout_seconds=5
    )
    return pulled.messages


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_in_a_batch_an_undecodable_message_fails_alone_and_in_its_order(setup: Setup, is_ordered: bool) -> None:
    batches: list[list[Any]] = []
    serializer = Json()

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        batches.append([message.value for message in messages])

    await setup.brokers.put(Q0, ["1", "2", "{", "3", "4"])
    await setup.join(
        "x", None, batch_listener=listener, serializer=serializer, ordered=is_ordered, max_reconsume_times=0
    )
    await setup.until(lambda: setup.hook.destinations["dlq"])
    await setup.until(lambda: len(batches) == 2)
    assert batches == [[1, 2], [3, 4]]
    assert serializer.decoded.count(b"3") == 1
    assert setup.hook.destinations == {"dlq": 1}
    await setup.clock.advance(6)
    assert setup.group.offsets[Q0] == 5


async def test_an_undecodable_message_that_is_leased_is_a_dead_letter_without_a_call(setup: Setup) -> None:
    seen: list[Any] = []
    dead: list[tuple[ReceivedMessage, str]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.value)

    await setup.brokers.put(Q0, ["1", "{", "2"])
    await setup.join(
        "x",
        listener,
        serializer=Json(),
        consume_mode=ConsumeMode.POP,
        max_reconsume_times=0,
        on_dead_letter=lambda *letter: dead.append(letter),
    )
    await setup.until(lambda: dead and len(seen) == 2)
    assert sorted(seen) == [1, 2]
    assert dead[0][1].startswith("UndecodableMessageError: the body of message id-{ cannot be decoded")
    assert dead[0][0].decode_error is not None


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_message_that_an_operator_had_handed_over_is_decoded_too(setup: Setup, is_batch: bool) -> None:
    seen: list[Any] = []

    async def listener(given: ReceivedMessage | Sequence[ReceivedMessage]) -> None:
        seen.append(given.value if isinstance(given, ReceivedMessage) else [each.value for each in given])

    requests: list[CoordinationRequest] = []

    def coordinate(request: CoordinationRequest) -> Coordination:
        requests.append(request)
        return setup.group.coordinate(request)

    settings: dict[str, Any] = {"batch_listener": listener} if is_batch else {}
    settings |= {"serializer": Json(), "make_coordination": coordinate}
    await setup.join("x", None if is_batch else listener, **settings)
    call = requests[0].call_listener
    assert call is not None
    message = ReceivedMessage(Message("orders", b"7"), Q0, 0, "id", None)
    assert (await call(message)).outcome is Outcome.SUCCESS
    ended = await call(message._replace(message=Message("orders", b"{")))
    assert ended.error.startswith("UndecodableMessageError")
    assert seen == [[7] if is_batch else 7]


async def test_a_listener_may_still_reject_what_was_decoded(setup: Setup) -> None:
    dead: list[str] = []

    async def listener(message: ReceivedMessage) -> ConsumeResult:
        raise Reject(f"no such customer {message.value}")

    await setup.brokers.put(Q0, ["9"])
    await setup.join("x", listener, serializer=Json(), on_dead_letter=lambda _, error: dead.append(error))
    await setup.until(lambda: dead)
    assert dead == ["no such customer 9"]


async def test_a_pull_consumer_hands_an_undecodable_message_out_with_its_reason(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["1", "{", "2"])
    consumer = await setup.join_pulling("x", serializer=Json())
    await setup.clock.advance(1)
    first, second, third = [await anext(consumer) for _ in range(3)]
    assert (first.value, third.value) == (1, 2)
    with pytest.raises(UndecodableMessageError, match=r"the body of message id-\{ cannot be decoded"):
        _ = second.value


async def test_a_simple_consumers_undecodable_message_becomes_a_dead_letter_with_its_reason(setup: Setup) -> None:
    await setup.brokers.put(Q0, ["{"])
    dead: list[tuple[ReceivedMessage, str]] = []
    consumer = await setup.join_leasing(
        "x", serializer=Json(), max_reconsume_times=0, on_dead_letter=lambda *letter: dead.append(letter)
    )
    (message,) = await consumer.receive(invisible_seconds=10)
    assert message.decode_error is not None
    receiving = asyncio.ensure_future(consumer.receive())
    await setup.clock.advance(16)
    assert await receiving == ()
    ((letter, error),) = dead
    assert error.startswith("not acknowledged after 1 deliveries: the body of message id-{ cannot be decoded: JSON")
    assert letter.decode_error is not None


async def test_the_check_of_a_transaction_gets_the_value(setup: Setup) -> None:
    asked: list[Any] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.value)
        return TransactionState.COMMIT

    async with TransactionProducer(
        setup.routes,
        producer_group="shop",
        topics=["orders"],
        check=check,
        transport=MemoryTransport(clock=setup.clock),
        clock=setup.clock,
        serializer=Json(),
    ) as sending:
        async with sending.transaction(sending.message("orders", {"n": 1})) as transaction:
            transaction.state = TransactionState.UNKNOWN
        await eventually(lambda: asked, clock=setup.clock)
    assert asked == [{"n": 1}]


def test_the_blocking_producer_makes_messages_too() -> None:
    producer = sync.Producer("127.0.0.1:1", transport=MemoryTransport, serializer=Json())
    message = producer.message("orders", [1], tags="paid", keys=("k",), properties={"a": "b"})
    assert (message.topic, message.body, message.tags, message.keys) == ("orders", b"[1]", "paid", ("k",))


def test_an_object_without_both_methods_is_refused() -> None:
    options: dict[str, Any] = {"group": "billing", "subscriptions": "orders", "listener": print, "serializer": json}
    with pytest.raises(InvalidOptionError, match=r"serializer = 'module' must have the methods"):
        PushConsumer("127.0.0.1:1", transport=MemoryTransport, **options)
