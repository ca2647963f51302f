"""The blocking producer and consumers, through a real name server and real agents, in the time of the fleet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc.aio
import pytest

from pointsman_client import client as async_client
from pointsman_client.core.lease import ConsumeMode
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.send_outcome import SendResult
from pointsman_client.core.transactions import TransactionState
from pointsman_client.errors import (
    BlockingCallError,
    ClientClosedError,
    InvalidMessageError,
    InvalidOptionError,
    MessageTooLargeError,
    SendFailedError,
    TooManyInFlightError,
)
from pointsman_client.sync import (
    NameServerClient,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
)
from pointsman_client.testing import TestFleet
from tests.kit.waiting import until

FIRST = ConsumeFrom.FIRST_OFFSET


@pytest.fixture(autouse=True)
def _without_grpc_aio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections opened here must run on gRPC's own threads."""

    def refuse(*_arguments: object, **_settings: object) -> None:
        raise AssertionError("a channel of grpc.aio was opened")

    monkeypatch.setattr(grpc.aio, "insecure_channel", refuse)


TOPICS = (
    "every-way",
    "callbacks",
    "threads",
    "listener",
    "loop",
    "sought",
    "shared",
    "transactions",
    "leased",
    "popped",
)
"""One for each test that sends."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[TestFleet]:
    with TestFleet() as fleet:
        fleet.add_broker("broker-a", topics=dict.fromkeys(TOPICS, 2))
        fleet.add_broker("broker-b", topics=dict.fromkeys(TOPICS, 2))
        yield fleet


def a_producer(fleet: TestFleet) -> Producer:
    return Producer(fleet.name_servers, transport=fleet.transport, clock=fleet.clock)


def a_pull_consumer(fleet: TestFleet, topic: str) -> PullConsumer:
    return PullConsumer(
        fleet.name_servers,
        group=topic,
        subscriptions={topic: "*"},
        transport=fleet.transport,
        consume_from=FIRST,
        clock=fleet.clock,
    )


def test_messages_are_sent_in_every_way(fleet: TestFleet) -> None:
    results: list[SendResult | Exception] = []
    with a_producer(fleet) as producer:
        assert producer.send(Message("every-way", b"1")).queue.topic == "every-way"
        assert len(producer.send_batch([Message("every-way", b"2"), Message("every-way", b"3")])) == 2
        queue = producer.client.publish_queues("every-way")[0]
        assert producer.send_to(queue, Message("every-way", b"4")).queue == queue
        assert (
            producer.send_selected(Message("every-way", b"5"), lambda queues, _, at: queues[at], 1).queue.queue_id == 1
        )
        one, other = (producer.send_by_key(Message("every-way", b"6"), "customer-7").queue for _ in range(2))
        assert one == other
        producer.send_async(Message("every-way", b"7"), results.append)
        producer.send_oneway(Message("every-way", b"8"))
        producer.drop_absent_brokers("every-way")
        assert producer.parked == 0
        assert producer.client.describe("every-way")["topic"] == "every-way"
        until(lambda: results)
        assert isinstance(results[0], SendResult)
        with pytest.raises(MessageTooLargeError):
            producer.send(Message("every-way", b"x" * 5_000_000))
    with pytest.raises(ClientClosedError):
        producer.send(Message("every-way", b"9"))


def test_a_producer_continues_at_another_broker_and_skips_the_dead_one(fleet: TestFleet) -> None:
    for name in ("broker-c", "broker-d"):
        fleet.add_broker(name, topics={"failover": 2})
    with a_producer(fleet) as producer:
        producer.send(Message("failover", b"-"))
        fleet.kill_broker("broker-c")
        assert {producer.send(Message("failover", b"-")).queue.broker_name for _ in range(20)} == {"broker-d"}
        fleet.advance(130)
        assert {queue.broker_name for queue in producer.client.publish_queues("failover")} == {"broker-d"}
        fleet.kill_broker("broker-d")
        with pytest.raises(SendFailedError):
            producer.send(Message("failover", b"-"))


def test_callbacks_that_do_not_return_block_new_sends_and_none_is_lost(fleet: TestFleet) -> None:
    resumed = threading.Event()
    results: list[SendResult | Exception] = []

    def callback(ended: SendResult | Exception) -> None:
        resumed.wait(10)
        results.append(ended)

    with Producer(
        fleet.name_servers, transport=fleet.transport, clock=fleet.clock, back_pressure_for_async_send_num=3
    ) as producer:
        for _ in range(3):
            producer.send_async(Message("callbacks", b"12"), callback)
        for _ in range(5):
            with pytest.raises(TooManyInFlightError, match=r"^3 messages with 6 bytes"):
                producer.send_async(Message("callbacks", b"12"), callback)
        resumed.set()
        until(lambda: len(results) == 3)
        with pytest.raises(InvalidMessageError):
            producer.send_async(Message.unchecked("callbacks", b""), callback)
        for _ in range(3):
            producer.send_async(Message("callbacks", b"12"), callback)
        until(lambda: len(results) == 6)


def test_transactions_are_blocks_and_the_brokers_in_memory_ask_about_those_that_raise(fleet: TestFleet) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT if message.body == b"paid late" else TransactionState.ROLLBACK

    topic = "transactions"
    with TransactionProducer(
        fleet.name_servers,
        producer_group="shop",
        topics=[topic],
        check=check,
        transport=fleet.transport,
        clock=fleet.clock,
    ) as producer:
        assert producer.send(Message(topic, b"plain")).half is None
        with producer.transaction(Message(topic, b"paid")) as transaction:
            assert transaction.result.queue.topic == topic
        assert (transaction.state, transaction.is_confirmed) == (TransactionState.COMMIT, True)
        with producer.transaction(Message(topic, b"cancelled")) as transaction:
            transaction.state = TransactionState.ROLLBACK
        for body in (b"paid late", b"failed"):
            with pytest.raises(ConnectionError), producer.transaction(Message(topic, body)):
                raise ConnectionError
        fleet.advance(10)
        until(lambda: sorted(asked) == [b"failed", b"paid late"])
    bodies: list[bytes] = []
    with PushConsumer(
        fleet.name_servers,
        group=topic,
        subscriptions={topic: "*"},
        listener=lambda message: bodies.append(message.body),
        transport=fleet.transport,
        consume_from=FIRST,
        clock=fleet.clock,
    ):
        fleet.advance_until(lambda: len(bodies) == 3)
        fleet.advance(2)
    assert sorted(bodies) == [b"paid", b"paid late", b"plain"]


def test_threads_share_a_producer(fleet: TestFleet) -> None:
    with a_producer(fleet) as producer, ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda n: producer.send(Message("threads", str(n).encode())), range(400)))
    assert len({(result.queue, result.queue_offset) for result in sent}) == 400


def test_a_listener_runs_in_threads_and_gets_every_message(fleet: TestFleet) -> None:
    bodies: set[bytes] = set()
    threads: set[str] = set()

    def listener(message: ReceivedMessage) -> None:
        time.sleep(0.002)
        threads.add(threading.current_thread().name)
        bodies.add(message.body)

    with a_producer(fleet) as producer:
        for n in range(100):
            producer.send(Message("listener", str(n).encode()))
    consumer = PushConsumer(
        fleet.name_servers,
        group="listener",
        subscriptions={"listener": "*"},
        listener=listener,
        transport=fleet.transport,
        consume_from=FIRST,
        clock=fleet.clock,
    )
    with consumer:
        fleet.advance_until(lambda: len(bodies) == 100)
        assert consumer.describe()["started"] is True
        assert consumer.client_id
    assert 1 < len(threads) <= 20
    assert not any("loop" in name for name in threads)


def test_a_plain_loop_over_a_consumer_gets_messages_and_ends_when_it_is_closed(fleet: TestFleet) -> None:
    bodies: list[bytes] = []

    def consume(consumer: PullConsumer) -> str:
        for message in consumer:
            bodies.append(message.body)  # noqa: PERF401  messages before the end count
        return "ended"

    with a_pull_consumer(fleet, "loop") as consumer, a_producer(fleet) as producer, ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(consume, consumer)
        for n in range(20):
            producer.send(Message("loop", str(n).encode()))
        fleet.advance_until(lambda: len(bodies) == 20)
        assert len(consumer.assignment) == 4
        consumer.close()
        assert consuming.result(5.0) == "ended"


def test_queues_are_assigned_sought_and_committed(fleet: TestFleet) -> None:
    queue = MessageQueue("sought", "DefaultCluster", "broker-a", 0)
    with a_producer(fleet) as producer:
        for n in range(5):
            producer.send_to(queue, Message("sought", str(n).encode()))
    consumer = PullConsumer(
        fleet.name_servers, group="sought", transport=fleet.transport, consume_from=FIRST, clock=fleet.clock
    )
    with consumer, ThreadPoolExecutor(1) as pool:
        consumer.assign([queue])
        fleet.advance_until(lambda: consumer.position(queue) is not None)
        polled: list[bytes] = []

        def poll() -> None:
            polled.extend(message.body for message in consumer.poll(timeout_seconds=30.0))

        polling = pool.submit(poll)
        fleet.advance_until(polling.done)
        assert polled == [b"0", b"1", b"2", b"3", b"4"]
        committing = pool.submit(consumer.commit)
        fleet.advance_until(committing.done)
        committing.result()
        assert consumer.committed(queue) == 5
        consumer.seek(queue, 3)
        assert consumer.position(queue) == 3
        consumer.pause([queue])
        consumer.resume([queue])


def test_a_client_is_shared_and_stays_the_callers(fleet: TestFleet) -> None:
    with NameServerClient(fleet.name_servers, clock=fleet.clock) as client:
        with Producer(client, transport=fleet.transport) as producer:
            producer.send(Message("shared", b"-"))
            assert producer.client is client
        assert set(TOPICS) <= set(client.list_topics())


def test_an_async_transport_is_refused(fleet: TestFleet) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        raise AssertionError

    with pytest.raises(InvalidOptionError, match="must not be async"):
        PushConsumer(
            fleet.name_servers,
            group="billing",
            subscriptions={"orders": "*"},
            listener=listener,  # type: ignore[arg-type]  # what is refused
            transport=fleet.transport,
        )
    with pytest.raises(InvalidOptionError, match="belongs to an event loop"):
        Producer(async_client.NameServerClient("127.0.0.1:1"), transport=fleet.transport)  # type: ignore[arg-type]


async def test_in_an_event_loop_the_async_classes_are_named(fleet: TestFleet) -> None:
    with pytest.raises(BlockingCallError, match="use the class of the same name in pointsman_client"):
        a_producer(fleet).start()


def test_a_listener_gets_leased_messages(fleet: TestFleet) -> None:
    seen: list[bytes] = []
    with (
        a_producer(fleet) as producer,
        PushConsumer(
            fleet.name_servers,
            group="popping",
            subscriptions="popped",
            listener=lambda message: seen.append(message.body),
            consume_mode=ConsumeMode.POP,
            transport=fleet.transport,
            clock=fleet.clock,
        ) as consumer,
    ):
        for number in range(8):
            producer.send(Message("popped", b"%d" % number))
        until(lambda: len(seen) == 8, what="all messages")
        until(lambda: consumer.describe()["unacknowledged"] == 0, what="all acknowledgements")
        fleet.advance(100)
    assert sorted(seen) == [b"%d" % number for number in range(8)]


def test_threads_receive_with_leases_and_a_close_ends_an_iteration(fleet: TestFleet) -> None:
    with (
        a_producer(fleet) as producer,
        SimpleConsumer(
            fleet.name_servers, group="leasing", subscriptions="leased", transport=fleet.transport, clock=fleet.clock
        ) as consumer,
    ):
        for number in range(8):
            producer.send(Message("leased", b"%d" % number))
        with ThreadPoolExecutor(4) as threads:
            found = [message for each in threads.map(lambda _: consumer.receive(1), range(8)) for message in each]
        assert sorted(message.body for message in found) == [b"%d" % number for number in range(8)]
        consumer.ack(*found[:7])
        consumer.change_invisible_duration(found[7], 10.0)
        fleet.advance(11)
        seen: list[ReceivedMessage] = []
        iterating = threading.Thread(target=lambda: seen.extend(consumer))
        iterating.start()
        until(lambda: seen, what="the message that came back")
        assert [(message.body, message.reconsume_times) for message in seen] == [(found[7].body, 1)]
        consumer.close()
        iterating.join(30)
        assert not iterating.is_alive()
