"""Transactions, at brokers in memory and over RocketMQ's protocol: what consumers see, and what brokers ask."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman_client import (
    InvalidMessageError,
    InvalidNameError,
    InvalidOptionError,
    Message,
    MessageQueue,
    Reader,
    ReceivedMessage,
    SendFailedError,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from pointsman_client.memory import MemoryTransport
from pointsman_client.memory.memory_transactions import CHECK_INTERVAL_SECONDS, MAX_CHECKS
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.producer import transaction_checks
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_client.rocketmq.groups.broker_membership import HEARTBEAT_INTERVAL_SECONDS
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.broker.rocketmq.group_broker import routed
from tests.kit.broker.rocketmq.transaction_broker import TransactionBroker
from tests.kit.client.memory_group import RoutesInMemory
from tests.kit.waiting import eventually

COMMIT, ROLLBACK, UNKNOWN = TransactionState
PAID = Message("orders", b"4711 paid", tags="paid", keys=("4711",), properties={"source": "web"})


class Ends(MetricsHook):
    """Records the ends of transactions."""

    def __init__(self) -> None:
        self.all: list[tuple[str, bool]] = []

    def transaction_ended(self, *, topic: str, state: str, is_checked: bool) -> None:
        assert topic == "orders"
        self.all.append((state, is_checked))


class Check:
    """A check of transactions that gives one state, and keeps what it was asked about."""

    def __init__(self, state: object = COMMIT) -> None:
        self.state = state
        self.asked: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> Any:
        self.asked.append(message)
        if isinstance(self.state, Exception):
            raise self.state
        return self.state


class Shop(ABC):
    """One broker of a kind, and producers of a group."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.routes = RoutesInMemory(clock)
        self.transport: Any = None
        self.addr = ""
        self.ends = Ends()

    def producer(self, check: Callable[[ReceivedMessage], Any], **more: Any) -> TransactionProducer:
        settings: dict[str, Any] = {"producer_group": "shop", "topics": ["orders"], "transport": self.transport} | more
        return TransactionProducer(self.routes, check=check, clock=self.clock, metrics_hook=self.ends, **settings)

    @abstractmethod
    async def ask(self) -> None:
        """Have the broker ask about each transaction that has not ended, also once more."""

    async def seen(self) -> list[bytes]:
        """What a consumer of the topic gets."""
        found = []
        for queue_id in range(2):
            queue = MessageQueue("orders", "c1", "a", queue_id)
            pulled = await self.transport.pull(
                self.addr, queue, 0, max_messages=32, wait_seconds=0, timeout_seconds=5, reader=Reader("billing")
            )
            found += [message.body for message in pulled.messages]
        return found

    async def until_ended(self, *ends: tuple[str, bool]) -> None:
        await eventually(lambda: self.ends.all == list(ends), clock=self.clock, what=f"{ends} in {self.ends.all}")


class MemoryShop(Shop):
    async def start(self) -> None:
        self.transport, self.addr = MemoryTransport(clock=self.clock), "10.0.0.1:10911"
        self.routes.set(routed("orders", {"a": self.addr}))

    async def ask(self) -> None:
        for _ in range(int(CHECK_INTERVAL_SECONDS) + 1):
            await self.clock.advance(1.0)
            await asyncio.sleep(0.003)  # of real time: checks may run in threads

    async def close(self) -> None:
        await self.transport.close()


class RocketmqShop(Shop):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.broker = TransactionBroker()

    async def start(self) -> None:
        await self.broker.start()
        self.transport, self.addr = RocketmqTransport(), self.broker.addr
        self.routes.set(routed("orders", {"a": self.addr}))

    async def ask(self) -> None:
        await self.until_registered(1)
        self.broker.check()

    async def until_registered(self, producers: int) -> None:
        await eventually(lambda: len(self.broker.producers["shop"]) >= producers, clock=self.clock, what="heartbeats")

    async def close(self) -> None:
        await self.transport.close()
        await self.broker.stop()


@pytest.fixture(params=[MemoryShop, RocketmqShop])
async def shop(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[Shop]:
    made: MemoryShop | RocketmqShop = request.param(clock)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def rocketmq(clock: ManualClock) -> AsyncIterator[RocketmqShop]:
    made = RocketmqShop(clock)
    await made.start()
    yield made
    await made.close()


async def fail_in(transaction: Transaction) -> None:
    with pytest.raises(ConnectionError):
        async with transaction:
            raise ConnectionError("the database did not confirm")


# The block


async def test_a_message_is_seen_when_its_block_has_ended(shop: Shop) -> None:
    check = Check()
    async with shop.producer(check) as producer:
        async with producer.transaction(PAID) as transaction:
            assert await shop.seen() == []
            assert transaction.result.queue_offset is None
        assert await shop.seen() == [b"4711 paid"]
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, True)
        await shop.ask()
        await shop.clock.advance(1.0)
    assert check.asked == []
    assert shop.ends.all == [("COMMIT", False)]


async def test_a_message_that_is_rolled_back_is_never_seen(shop: Shop) -> None:
    check = Check()
    async with shop.producer(check) as producer:
        async with producer.transaction(PAID) as transaction:
            transaction.state = ROLLBACK
        await shop.ask()
        await shop.clock.advance(1.0)
        assert await shop.seen() == []
    assert transaction.is_confirmed
    assert check.asked == []
    assert shop.ends.all == [("ROLLBACK", False)]


@pytest.mark.parametrize(("state", "seen"), [(COMMIT, [b"4711 paid"]), (ROLLBACK, [])])
async def test_a_block_that_raises_leaves_the_end_to_the_check(
    shop: Shop, state: TransactionState, seen: list[bytes]
) -> None:
    check = Check(UNKNOWN)
    async with shop.producer(check) as producer:
        transaction = producer.transaction(PAID)
        await fail_in(transaction)
        assert (transaction.state, transaction.is_confirmed) == (UNKNOWN, False)
        assert await shop.seen() == []
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("UNKNOWN", True))
        check.state = state
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("UNKNOWN", True), (state.value, True))
        assert await shop.seen() == seen
        await shop.ask()
        await shop.clock.advance(1.0)
    assert len(check.asked) == 2
    message = check.asked[0]
    assert message.message == PAID
    assert message.message_id == transaction.result.message_id


async def test_a_transaction_whose_block_runs_is_not_checked(shop: Shop) -> None:
    """Its mark is not in the database yet, so a check would roll it back."""
    check = Check(ROLLBACK)
    async with shop.producer(check) as producer:
        await eventually(lambda: True, clock=shop.clock)
        async with producer.transaction(PAID):
            await shop.ask()
            await shop.ask()
            await shop.clock.advance(1.0)
            await asyncio.sleep(0.05)
        # The broker moved the message when it asked: the end is that of the message, not of its old place.
        assert await shop.seen() == [b"4711 paid"]
        await shop.ask()
        await shop.clock.advance(1.0)
    assert check.asked == []
    assert shop.ends.all == [("COMMIT", False)]


async def test_another_producer_of_the_group_ends_the_transactions_of_one_that_has_gone(shop: Shop) -> None:
    first, second, foreign = Check(UNKNOWN), Check(COMMIT), Check(ROLLBACK)
    async with shop.producer(foreign, producer_group="other"), shop.producer(second):
        async with shop.producer(first) as producer:
            await fail_in(producer.transaction(PAID))
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("COMMIT", True))
        assert await shop.seen() == [b"4711 paid"]
    assert (len(first.asked), len(second.asked), len(foreign.asked)) == (0, 1, 0)


async def test_a_producer_that_starts_after_the_other_has_gone_ends_its_transactions(shop: Shop) -> None:
    async with shop.producer(Check(UNKNOWN)) as producer:
        await fail_in(producer.transaction(PAID))
    async with shop.producer(Check(COMMIT)):
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("COMMIT", True))
        assert await shop.seen() == [b"4711 paid"]


# Checks


async def test_a_plain_function_checks_in_a_thread(shop: Shop) -> None:
    threads: list[str] = []

    def check(_: ReceivedMessage) -> TransactionState:
        threads.append(threading.current_thread().name)
        return COMMIT

    async with shop.producer(check) as producer:
        await fail_in(producer.transaction(PAID))
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("COMMIT", True))
    assert len(threads) == 1
    assert threads[0] != threading.main_thread().name


@pytest.mark.parametrize(
    ("given", "logged"),
    [
        (ValueError("no database"), "ValueError: no database"),
        (True, "returned True, which is not a TransactionState"),
        (None, "returned None, which is not a TransactionState"),
    ],
)
async def test_a_check_that_fails_leaves_the_transaction_open(
    shop: Shop, caplog: pytest.LogCaptureFixture, given: object, logged: str
) -> None:
    check = Check(given)
    async with shop.producer(check) as producer:
        await fail_in(producer.transaction(PAID))
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("UNKNOWN", True))
        check.state = COMMIT
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("UNKNOWN", True), ("COMMIT", True))
    assert logged in caplog.text


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_check_that_does_not_return_ends_at_its_timeout_and_holds_up_no_other(
    shop: Shop, caplog: pytest.LogCaptureFixture, is_plain: bool
) -> None:
    release = threading.Event()

    async def hang(message: ReceivedMessage) -> TransactionState:
        if message.body == PAID.body:
            await asyncio.Event().wait()
        return COMMIT

    def block(message: ReceivedMessage) -> TransactionState:
        if message.body == PAID.body:
            release.wait(60)
        return COMMIT

    check = block if is_plain else hang
    async with shop.producer(check, check_concurrency=1, check_timeout_seconds=2.0) as producer:
        await fail_in(producer.transaction(PAID))
        await shop.ask()
        await shop.until_ended(("UNKNOWN", False), ("UNKNOWN", True))
        await fail_in(producer.transaction(Message("orders", b"next")))
        await shop.ask()
        await eventually(lambda: ("COMMIT", True) in shop.ends.all, clock=shop.clock, what="the other check")
        assert await shop.seen() == [b"next"]
        release.set()
    assert "took longer than 2 s" in caplog.text


async def test_a_transaction_is_asked_about_once_while_its_check_runs_and_ended_at_its_last_place(shop: Shop) -> None:
    running, may_end = asyncio.Event(), asyncio.Event()
    asked = 0

    async def check(_: ReceivedMessage) -> TransactionState:
        nonlocal asked
        asked += 1
        running.set()
        await may_end.wait()
        return COMMIT

    async with shop.producer(check, check_timeout_seconds=1_000.0) as producer:
        await fail_in(producer.transaction(PAID))
        await shop.ask()
        await eventually(running.is_set, clock=shop.clock)
        await shop.ask()
        await asyncio.sleep(0.05)
        may_end.set()
        await shop.until_ended(("UNKNOWN", False), ("COMMIT", True))
        assert await shop.seen() == [b"4711 paid"]
    assert asked == 1


async def test_a_limited_number_of_checks_waits(
    shop: Shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_checks, "MAX_CHECKS", 2)
    may_end = asyncio.Event()

    async def check(_: ReceivedMessage) -> TransactionState:
        await may_end.wait()
        return COMMIT

    async with shop.producer(check, check_concurrency=1, check_timeout_seconds=1_000.0) as producer:
        for _ in range(3):
            await fail_in(producer.transaction(PAID))
        await shop.ask()
        await eventually(lambda: "a check of a transaction was dropped" in caplog.text, clock=shop.clock)
        may_end.set()
        await eventually(lambda: shop.ends.all.count(("COMMIT", True)) == 2, clock=shop.clock)
        await shop.ask()
        await eventually(lambda: shop.ends.all.count(("COMMIT", True)) == 3, clock=shop.clock)


async def test_memory_drops_a_message_after_as_many_checks_as_rocketmq(clock: ManualClock) -> None:
    shop, check = MemoryShop(clock), Check(UNKNOWN)
    await shop.start()
    async with shop.producer(check) as producer:
        await fail_in(producer.transaction(PAID))
        for _ in range(MAX_CHECKS + 3):
            await shop.ask()
        assert len(check.asked) == MAX_CHECKS
    await shop.close()


# What cannot be


async def test_redis_refuses_and_names_the_alternative(clock: ManualClock) -> None:
    routes = RoutesInMemory(clock)
    producer = TransactionProducer(
        routes, producer_group="shop", topics=["orders"], check=Check(), transport=RedisStreamsTransport
    )
    with pytest.raises(InvalidOptionError, match=r"transport = 'RedisStreamsTransport' has no transactions: .* outbox"):
        await producer.start()


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"producer_group": ""}, InvalidNameError),
        ({"topics": []}, InvalidOptionError),
        ({"topics": "orders"}, InvalidOptionError),
        ({"topics": ["or ders"]}, InvalidNameError),
        ({"check": None}, InvalidOptionError),
        ({"check_concurrency": 0}, InvalidOptionError),
        ({"check_timeout_seconds": 0.0}, InvalidOptionError),
        ({"client_id": "me"}, InvalidOptionError),
    ],
)
def test_options_are_checked(option: dict[str, Any], error: type[Exception]) -> None:
    options: dict[str, Any] = {"producer_group": "shop", "topics": ["orders"], "check": Check()} | option
    with pytest.raises(error):
        TransactionProducer("10.0.0.1:9876", transport=MemoryTransport, **options)


async def test_messages_that_cannot_be_in_a_transaction_are_refused_before_the_work(shop: Shop) -> None:
    later = Message("orders", b"later", deliver_at=datetime.now(UTC))
    async with shop.producer(Check()) as producer:
        for message, problem in (
            (Message("other", b"1"), r"topic 'other' is not one of the producer's topics \(orders\)"),
            (later, "deliver_at .* cannot be set in a transaction"),
        ):
            with pytest.raises(InvalidMessageError, match=problem):
                async with producer.transaction(message):
                    raise AssertionError("the work began")


async def test_a_transaction_has_one_block_and_no_result_before_it(shop: Shop) -> None:
    async with shop.producer(Check()) as producer:
        transaction = producer.transaction(PAID)
        with pytest.raises(RuntimeError, match="has not begun"):
            _ = transaction.result
        async with transaction:
            pass
        with pytest.raises(RuntimeError, match="for one block"):
            await transaction.__aenter__()


async def test_its_other_sends_are_those_of_every_producer(shop: Shop) -> None:
    async with shop.producer(Check()) as producer:
        result = await producer.send(Message("orders", b"plain"))
        assert (result.queue_offset, result.half) == (0, None)
        assert await shop.seen() == [b"plain"]


# RocketMQ's wire


async def test_a_half_message_and_its_end_are_what_brokers_expect(rocketmq: RocketmqShop) -> None:
    async with rocketmq.producer(Check()) as producer, producer.transaction(PAID) as transaction:
        pass
    (sent,), (end,) = rocketmq.broker.sent, rocketmq.broker.ends
    assert sent.ext["f"] == "4"
    assert "TRAN_MSG\x01true\x02PGROUP\x01shop\x02" in sent.ext["i"]
    assert end == {
        "topic": "orders",
        "producerGroup": "shop",
        "tranStateTableOffset": "1",
        "commitLogOffset": "1000",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": transaction.result.message_id,
        "transactionId": transaction.result.message_id,
    }


@pytest.mark.parametrize("is_checked", [False, True])
async def test_a_broker_that_asks_about_an_end_that_it_has_confirmed_is_not_answered_for_a_while(
    rocketmq: RocketmqShop, is_checked: bool
) -> None:
    rocketmq.broker.is_late = True
    async with rocketmq.producer(Check()) as producer:
        if is_checked:
            await fail_in(producer.transaction(PAID))
            await rocketmq.ask()
        else:
            async with producer.transaction(PAID):
                pass
        await eventually(lambda: ("COMMIT", is_checked) in rocketmq.ends.all, clock=rocketmq.clock)
        await rocketmq.ask()
        await rocketmq.clock.advance(5.0)
        await rocketmq.ask()
        await asyncio.sleep(0.1)
        assert await rocketmq.seen() == [b"4711 paid"]
        await rocketmq.clock.advance(transaction_checks.SETTLED_SECONDS)
        await rocketmq.ask()
        # It may have lost the end.
        await eventually(lambda: len(rocketmq.broker.ends) == 2, clock=rocketmq.clock)


async def test_a_limited_number_of_ends_is_kept_in_mind(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_checks, "MAX_SETTLED", 2)
    async with shop.producer(Check()) as producer:
        for _ in range(4):
            async with producer.transaction(PAID):
                pass
        assert producer._checks is not None
        assert len(producer._checks._settled) == 2
        await shop.clock.advance(transaction_checks.SETTLED_SECONDS + 1.0)
        async with producer.transaction(PAID):
            pass
        assert len(producer._checks._settled) == 1


async def test_a_compressed_body_is_read_in_a_check(rocketmq: RocketmqShop) -> None:
    check = Check()
    async with rocketmq.producer(check) as producer:
        await fail_in(producer.transaction(Message("orders", b"x" * 10_000)))
        assert rocketmq.broker.sent[0].ext["f"] == "5"
        await rocketmq.ask()
        await rocketmq.until_ended(("UNKNOWN", False), ("COMMIT", True))
    assert check.asked[0].body == b"x" * 10_000


async def test_an_end_without_a_confirmation_is_left_to_the_check(
    rocketmq: RocketmqShop, caplog: pytest.LogCaptureFixture
) -> None:
    rocketmq.broker.answers[Request.END_TRANSACTION] = Answer(Code.SYSTEM_BUSY, remark="not now")
    check = Check()
    async with rocketmq.producer(check) as producer:
        async with producer.transaction(PAID) as transaction:
            pass
        assert (transaction.state, transaction.is_confirmed) == (COMMIT, False)
        assert "not now" in caplog.text
        await rocketmq.ask()
        await eventually(lambda: "was not accepted" in caplog.text, clock=rocketmq.clock)
        del rocketmq.broker.answers[Request.END_TRANSACTION]
        await rocketmq.ask()
        await rocketmq.until_ended(("UNCONFIRMED", False), ("COMMIT", True))
        assert rocketmq.broker.ends[-1]["fromTransactionCheck"] == "true"
        assert await rocketmq.seen() == [b"4711 paid"]


async def test_a_message_that_is_stored_less_safely_is_rolled_back_before_the_work(rocketmq: RocketmqShop) -> None:
    store = rocketmq.broker.handlers[Request.SEND_MESSAGE_V2]

    async def store_alone(command: Any, body: bytes) -> Answer:
        answer = store(command, body)
        assert not isinstance(answer, Answer)
        return Answer(Code.SLAVE_NOT_AVAILABLE, (await answer).ext)

    rocketmq.broker.handlers[Request.SEND_MESSAGE_V2] = store_alone
    async with rocketmq.producer(Check()) as producer:
        with pytest.raises(SendFailedError, match="SLAVE_NOT_AVAILABLE: the transaction was rolled back"):
            async with producer.transaction(PAID):
                raise AssertionError("the work began")
    assert rocketmq.broker.halves == {}
    assert rocketmq.ends.all == [("ROLLBACK", False)]


async def test_a_producer_registers_at_every_master_and_unregisters(rocketmq: RocketmqShop) -> None:
    broker = rocketmq.broker
    async with TransactionBroker() as other, rocketmq.producer(Check(), client_id="10.0.0.1@me"):
        await rocketmq.until_registered(1)
        assert [*broker.producers["shop"].values()] == ["10.0.0.1@me"]
        rocketmq.routes.set(routed("orders", {"a": broker.addr, "b": other.addr}))
        await eventually(lambda: other.producers["shop"], clock=rocketmq.clock, step=0.05, what="the new broker")
        beats = broker.codes().count(Request.HEART_BEAT)
        await rocketmq.clock.advance(HEARTBEAT_INTERVAL_SECONDS + 1.0)
        await eventually(lambda: broker.codes().count(Request.HEART_BEAT) > beats, clock=rocketmq.clock)
        lost_at = rocketmq.clock.monotonic()
        broker.close_connections()
        await eventually(lambda: not broker.producers["shop"], clock=rocketmq.clock)
        await eventually(lambda: broker.producers["shop"], clock=rocketmq.clock, what="the new connection")
        assert rocketmq.clock.monotonic() - lost_at < HEARTBEAT_INTERVAL_SECONDS / 2
    assert broker.producers["shop"] == {}
    assert Request.UNREGISTER_CLIENT in broker.codes()


async def test_a_broker_that_refuses_heartbeats_is_logged_until_it_accepts_them(
    rocketmq: RocketmqShop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    rocketmq.broker.answers[Request.HEART_BEAT] = Answer(Code.SYSTEM_ERROR, remark="no")
    async with rocketmq.producer(Check()):
        await eventually(lambda: rocketmq.broker.codes().count(Request.HEART_BEAT) >= 2, clock=rocketmq.clock)
        assert caplog.text.count("heartbeat of producer group shop failed") == 1
        del rocketmq.broker.answers[Request.HEART_BEAT]
        await rocketmq.until_registered(1)
        await eventually(lambda: "heartbeat of producer group shop accepted" in caplog.text, clock=rocketmq.clock)
