"""Sends to one queue: given, by a selector, by a key, and what happens while it is not writable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pointsman_client.core.message import Message, OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    InvalidMessageError,
    InvalidOptionError,
    NoWritableQueueError,
    OutboxFailedError,
    OutboxFullError,
    QueueUnavailableError,
    ResponseCode,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.ports.transport import SendReceipt
from pointsman_client.producer.outbox import Outbox, Parked
from pointsman_client.producer.outbox_sender import REFUSED_RETRY_SECONDS
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Fallback, Park
from tests.kit.client.producing import A, B, Shop, producing, put_route
from tests.kit.client.scripted_transport import ScriptedTransport
from tests.kit.name_server.scripted_routes import (
    ScriptedRouteServer,
    broker_data,
    scripted_route_server,
    topic_route,
    with_digest,
)
from tests.kit.waiting import eventually

HELLO = Message("orders", b"hello")
A0, A1, B0 = (MessageQueue("orders", "c1", broker, number) for broker, number in (("a", 0), ("a", 1), ("b", 0)))
AWAY = MessageQueue("orders", "c1", "z", 0)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        put_route(server, "a", "b", write=2)
        yield server


async def parked(shop: Shop, count: int) -> None:
    """Advance the clock until ``count`` messages are parked."""
    await eventually(lambda: shop.producer.parked == count, clock=shop.clock, step=0.5)


def bodies(shop: Shop, queue: MessageQueue) -> list[bytes]:
    return [each.message.body for each in shop.transport.written[queue]]


def numbered(number: int) -> Message:
    return Message("orders", str(number).encode(), "t", ("k",), {"n": "ä"})


async def test_a_static_topic_is_refused_and_nothing_is_sent(server: ScriptedRouteServer) -> None:
    put_route(server, "a")
    async with producing(server) as shop:
        queue = (await shop.producer.send(HELLO)).queue
        route = server.routes["orders"]
        route.static_topic_mappings.add(cluster="c1", broker_name="a", scope="__global__", total_queues=4, epoch=1)
        server.routes["orders"] = with_digest(route, counter=2)
        await shop.producer.client.refresh("orders")
        producer, refusal = shop.producer, "it is a static topic, which this client does not support"
        with pytest.raises(NoWritableQueueError, match=refusal):
            await producer.send(HELLO)
        with pytest.raises(NoWritableQueueError, match=refusal):
            await producer.send_to(queue, HELLO)
        with pytest.raises(NoWritableQueueError, match=refusal):
            await producer.send_by_key(HELLO, "k")
        assert len(shop.transport.calls) == 1


# The queue


async def test_a_message_goes_to_the_queue_that_was_named_in_one_try(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        result = await shop.producer.send_to(A1, HELLO)

        assert (result.queue, result.tries, result.queue_offset) == (A1, 1, 0)
        assert shop.transport.places == ["a:1"]


async def test_a_queue_of_another_topic_is_refused(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        with pytest.raises(InvalidMessageError, match="is not the topic of"):
            await shop.producer.send_to(MessageQueue("bills", "c1", "a", 0), HELLO)


async def test_a_queue_and_a_selector_of_wrong_types_are_named(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        wrong: Any
        for wrong in (None, "a:0", ("orders", "c1", "a", 0)):
            with pytest.raises(InvalidOptionError, match=r"^queue = "):
                await shop.producer.send_to(wrong, HELLO)
            with pytest.raises(InvalidOptionError, match=r"^selector = "):
                await shop.producer.send_selected(HELLO, wrong)
        for wrong in (None, "print"):
            with pytest.raises(InvalidOptionError, match=r"^callback = "):
                shop.producer.send_async(HELLO, wrong)
        with pytest.raises(InvalidMessageError, match=r"^second 5 "):
            await shop.producer.send_by_key(HELLO, "key", second=cast("Any", 5))


async def test_a_selector_chooses_of_the_writable_queues(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        result = await shop.producer.send_selected(HELLO, lambda queues, _, number: queues[number % len(queues)], 6)

        assert result.queue == B0


async def test_a_selector_must_return_a_queue_of_the_topic(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        for wrong in (None, MessageQueue("bills", "c1", "a", 0)):
            with pytest.raises(InvalidOptionError, match="selector"):
                await shop.producer.send_selected(HELLO, lambda *_, wrong=wrong: wrong)


async def test_messages_of_a_key_go_to_one_queue_and_keys_to_all(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        keys = [f"key-{number}" for number in range(100)]
        first = {key: (await shop.producer.send_by_key(HELLO, key)).queue for key in keys}
        second = {key: (await shop.producer.send_by_key(HELLO, key)).queue for key in keys}

        assert first == second
        assert len(set(first.values())) == 4


async def test_keys_keep_their_queue_while_its_broker_is_down(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        keys = [f"key-{number}" for number in range(40)]
        before = {key: (await shop.producer.send_by_key(HELLO, key)).queue for key in keys}
        put_route(server, "b", write=2)
        await shop.producer.client.refresh("orders")

        for key in keys:
            if before[key].broker_name == "a":
                with pytest.raises(QueueUnavailableError, match="broker a is not in the route"):
                    await shop.producer.send_by_key(HELLO, key)
            else:
                assert (await shop.producer.send_by_key(HELLO, key)).queue == before[key]

        shop.producer.drop_absent_brokers("orders")
        after = {key: (await shop.producer.send_by_key(HELLO, key)).queue for key in keys}
        assert {queue.broker_name for queue in after.values()} == {"b"}
        assert all(after[key] == before[key] for key in keys if before[key].broker_name == "b")


async def test_a_key_is_a_text(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        for key in ("", "\ud800", 7):
            with pytest.raises(InvalidMessageError, match="key"):
                await shop.producer.send_by_key(HELLO, key)  # type: ignore[arg-type]


async def test_a_topic_without_write_queues_has_no_map(server: ScriptedRouteServer) -> None:
    put_route(server, "a", write=0)
    async with producing(server) as shop:
        with pytest.raises(NoWritableQueueError):
            await shop.producer.send_by_key(HELLO, "key")


# Raise


async def test_a_queue_that_is_not_writable_raises_with_the_reason(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        with pytest.raises(QueueUnavailableError, match="broker z is not in the route"):
            await shop.producer.send_to(AWAY, HELLO)
        with pytest.raises(QueueUnavailableError, match="broker a has 2 write queues"):
            await shop.producer.send_to(MessageQueue("orders", "c1", "a", 2), HELLO)
        shop.transport.unreachable(A)
        with pytest.raises(QueueUnavailableError, match="connection refused") as failure:
            await shop.producer.send_to(A0, HELLO)
        assert isinstance(failure.value.__cause__, BrokerUnreachableError)
        assert len(shop.transport.calls) == 1


async def test_a_broker_without_its_master_cannot_be_written(server: ScriptedRouteServer) -> None:
    server.routes["orders"] = topic_route(groups=[broker_data("a", {1: A}, cluster="c1")])
    async with producing(server) as shop:
        with pytest.raises(QueueUnavailableError, match="has no master"):
            await shop.producer.send_to(A0, HELLO)


async def test_a_queue_whose_broker_did_not_respond_is_not_reported_as_not_writable(
    server: ScriptedRouteServer,
) -> None:
    async with producing(server) as shop:
        shop.transport.late(A)
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send_to(A0, HELLO)
        assert isinstance(failure.value.tries[0].error, BrokerTimeoutError)


# Fallback


async def test_a_fallback_sends_the_message_immediately(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        for break_a in (shop.transport.unreachable, shop.transport.late):
            break_a(A)
            result = await shop.producer.send_to(A0, HELLO, on_unavailable=Fallback(B0))
            assert (result.queue, result.tries) == (B0, 2)
        chosen = await shop.producer.send_to(
            AWAY, HELLO, on_unavailable=Fallback(lambda _, queues: queues[-1]), timeout_seconds=1
        )
        assert (chosen.queue.broker_name, chosen.queue.queue_id) == ("b", 1)


async def test_a_broker_that_hangs_leaves_time_for_the_fallback(server: ScriptedRouteServer) -> None:
    async with producing(server, clock=None) as shop:
        shop.transport.hang(A)
        result = await shop.producer.send_to(A0, HELLO, on_unavailable=Fallback(B0), timeout_seconds=3.0)

        assert result.queue == B0


async def test_a_message_that_no_broker_accepts_is_not_sent_elsewhere(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server) as shop:
        shop.transport.refuse(ResponseCode.MESSAGE_ILLEGAL, A)
        for elsewhere in (Fallback(B0), Park(Outbox(tmp_path / "outbox"))):
            with pytest.raises(SendFailedError):
                await shop.producer.send_to(A0, HELLO, on_unavailable=elsewhere)
        assert shop.producer.parked == 0


async def test_a_fallback_of_another_topic_is_refused(server: ScriptedRouteServer) -> None:
    async with producing(server) as shop:
        with pytest.raises(InvalidOptionError, match="on_unavailable"):
            await shop.producer.send_to(AWAY, HELLO, on_unavailable=Fallback(MessageQueue("bills", "c1", "a", 0)))


# Park


async def test_parked_messages_are_sent_in_order_when_the_queue_is_back(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        shop.transport.unreachable(A)
        results = [await shop.producer.send_to(A0, numbered(number)) for number in range(3)]
        assert all(result.is_parked and result.queue_offset is None for result in results)
        assert (shop.producer.parked, shop.heard.waiting) == (3, [1, 2, 3])
        assert shop.heard.sends == [("PARKED", 1), ("PARKED", 0), ("PARKED", 0)]

        # After the pending ones, though the broker would accept it now.
        shop.transport.recover(A)
        last = await shop.producer.send_to(A0, numbered(3))
        await parked(shop, 0)

        assert bodies(shop, A0) == [b"0", b"1", b"2", b"3"]
        assert [each.message_id for each in shop.transport.written[A0]] == [
            result.message_id for result in (*results, last)
        ]
        assert shop.transport.written[A0][0].message == numbered(0)
        assert (await shop.producer.send_to(A0, numbered(4))).status is SendStatus.SEND_OK


async def test_one_queue_that_stays_down_blocks_no_other(server: ScriptedRouteServer, tmp_path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        shop.transport.unreachable(A, B)
        for queue in (A0, B0, A1):
            await shop.producer.send_to(queue, HELLO)
        shop.transport.recover(B)
        await parked(shop, 2)

        assert bodies(shop, B0) == [b"hello"]


class WithReservedProperties(ScriptedTransport):
    """Refuses messages with the property DELAY, without a call."""

    refuses = True

    async def send(
        self, addr: str, queue: MessageQueue, messages: Sequence[OutgoingMessage], *, timeout_seconds: float
    ) -> SendReceipt:
        if self.refuses and addr not in self.behaviour and any("DELAY" in each.message.properties for each in messages):
            raise InvalidMessageError("properties", "DELAY", "is reserved")
        return await super().send(addr, queue, messages, timeout_seconds=timeout_seconds)


async def test_a_parked_message_that_is_refused_blocks_no_other_and_is_tried_again(
    server: ScriptedRouteServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Message("orders", b"2", properties={"DELAY": "1"})
    outbox = Park(Outbox(tmp_path / "outbox"))
    transport = WithReservedProperties()
    async with producing(server, transport=transport, on_unavailable=outbox) as shop:
        transport.unreachable(A)
        for message in (numbered(0), numbered(1), refused, numbered(3), numbered(4)):
            assert (await shop.producer.send_to(A0, message)).is_parked
        transport.recover(A)
        await parked(shop, 1)

        assert [each.message.body for each in transport.written[A0]] == [b"0", b"1", b"3", b"4"]
        (line,) = [each for each in caplog.messages if "stays in the outbox" in each]
        assert "DELAY" in line
        assert not (await shop.producer.send_to(A0, numbered(5))).is_parked

    later = WithReservedProperties()
    async with producing(server, transport=later, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        await eventually(lambda: len([each for each in caplog.messages if "stays in the outbox" in each]) == 2)
        later.refuses = False
        await shop.clock.advance(REFUSED_RETRY_SECONDS - 60.0)
        assert (shop.producer.parked, later.written[A0]) == (1, [])
        await shop.clock.advance(60.0)
        await parked(shop, 0)
        assert [each.message.body for each in later.written[A0]] == [b"2"]


async def test_a_message_that_no_broker_accepts_is_not_parked(server: ScriptedRouteServer, tmp_path: Path) -> None:
    class Checking(WithReservedProperties):
        def check(self, queue: MessageQueue, message: OutgoingMessage) -> None:
            if "DELAY" in message.message.properties:
                raise InvalidMessageError("properties", "DELAY", f"is reserved in {queue.topic}")

    transport = Checking()
    refused = Message("orders", b"2", properties={"DELAY": "1"})
    async with producing(server, transport=transport, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        transport.unreachable(A)
        for _ in range(2):  # alone, and behind another message
            with pytest.raises(InvalidMessageError, match="is reserved in orders"):
                await shop.producer.send_to(A0, refused)
            assert (await shop.producer.send_to(A0, HELLO)).is_parked
        assert shop.producer.parked == 2


async def test_a_change_of_the_route_ends_the_wait(server: ScriptedRouteServer, tmp_path: Path) -> None:
    put_route(server, "b", write=2)
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        await shop.producer.send_to(A0, HELLO)
        await asyncio.sleep(0.05)
        assert shop.producer.parked == 1
        put_route(server, "a", "b", write=2)
        await shop.producer.client.refresh("orders")
        await eventually(lambda: not shop.producer.parked)

        assert bodies(shop, A0) == [b"hello"]


async def test_parked_messages_outlive_the_producer(server: ScriptedRouteServer, tmp_path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        shop.transport.unreachable(A)
        for number in range(3):
            await shop.producer.send_to(A0, numbered(number))

    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        await parked(shop, 0)
        assert bodies(shop, A0) == [b"0", b"1", b"2"]


async def test_messages_are_parked_while_no_name_server_responds(server: ScriptedRouteServer, tmp_path: Path) -> None:
    async with producing(server, clock=None, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        server.hang()
        assert (await shop.producer.send_to(A0, HELLO, timeout_seconds=0.1)).is_parked
        server.recover()


async def test_messages_are_parked_while_the_topic_is_gone_with_its_last_broker(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        usual = (await shop.producer.send_by_key(numbered(0), "key")).queue
        del server.routes["orders"]
        with pytest.raises(TopicNotFoundError):
            await shop.producer.client.refresh("orders")

        by_key = [await shop.producer.send_by_key(numbered(number), "key") for number in (1, 2)]
        to_queue = await shop.producer.send_to(usual, numbered(3))
        assert [(each.is_parked, each.queue) for each in (*by_key, to_queue)] == [(True, usual)] * 3
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send_by_key(numbered(4), "key", on_unavailable="raise")

        put_route(server, "a", "b", write=2)
        await parked(shop, 0)
        assert bodies(shop, usual) == [b"0", b"1", b"2", b"3"]


async def test_a_key_of_a_topic_that_never_had_a_route_has_no_queue_to_park_for(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send_by_key(Message("order", b"1"), "key")
        await shop.producer.send_by_key(HELLO, "key")
        del server.routes["orders"]
        with pytest.raises(TopicNotFoundError):
            await shop.producer.client.refresh("orders")
        shop.producer.drop_absent_brokers("orders")
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send_by_key(HELLO, "key")


class GatedOutbox(Outbox):
    """An outbox whose disk waits for ``answers``; counts writes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.answers = threading.Event()
        self.written: list[int] = []
        self.problem = ""

    def write(self, added: Sequence[Parked], sent: Sequence[Parked]) -> None:
        self.answers.wait(20.0)
        self.written.append(len(added))
        if self.problem:
            raise OutboxFailedError(str(self.path), self.problem)
        super().write(added, sent)


async def test_messages_that_wait_for_the_disk_are_written_together(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    outbox = GatedOutbox(tmp_path / "outbox")
    async with producing(server, on_unavailable=Park(outbox)) as shop:
        shop.transport.unreachable(A)
        sends = [asyncio.create_task(shop.producer.send_to(A0, numbered(number))) for number in range(20)]
        # The loop runs while the disk does not respond, and no message counts as parked before it did.
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in sends)
        assert shop.producer.parked == 0
        outbox.answers.set()
        assert all(result.is_parked for result in await asyncio.gather(*sends))
        assert sum(outbox.written) == 20
        assert len(outbox.written) <= 3
        shop.transport.recover(A)
        await parked(shop, 0)
        assert bodies(shop, A0) == [str(number).encode() for number in range(20)]


async def test_a_disk_error_fails_each_pending_message_and_frees_their_space(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    outbox = GatedOutbox(tmp_path / "outbox")
    outbox.max_bytes = 600
    outbox.problem = "cannot be written: it is full"
    async with producing(server, on_unavailable=Park(outbox)) as shop:
        shop.transport.unreachable(A)
        sends = [asyncio.create_task(shop.producer.send_to(A0, numbered(number))) for number in range(2)]
        outbox.answers.set()
        for each in sends:
            with pytest.raises(OutboxFailedError, match="it is full"):
                await each
        assert shop.producer.parked == 0
        outbox.problem = ""
        for number in range(2):
            assert (await shop.producer.send_to(A0, numbered(number))).is_parked


async def test_an_outbox_is_bounded(server: ScriptedRouteServer, tmp_path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox", max_bytes=600))) as shop:
        shop.transport.unreachable(A)
        await shop.producer.send_to(A0, HELLO)
        await shop.producer.send_to(A0, HELLO)
        with pytest.raises(OutboxFullError, match=r"is full \(600 bytes\)"):
            await shop.producer.send_to(A0, HELLO)
        assert shop.producer.parked == 2


async def test_an_outbox_in_use_fails_the_start_and_leaves_nothing_open(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))):
        made: list[ScriptedTransport] = []

        def make() -> ScriptedTransport:
            made.append(ScriptedTransport())
            return made[-1]

        second = Producer([server.addr], transport=make, on_unavailable=Park(Outbox(tmp_path / "outbox")))
        with pytest.raises(OutboxFailedError, match="give each process its own outbox"):
            await second.start()
        assert [transport.closed for transport in made] == [1]


async def test_an_outbox_that_cannot_be_opened_is_reported(server: ScriptedRouteServer, tmp_path: Path) -> None:
    async with producing(server) as shop:
        for path in (tmp_path, tmp_path / "missing" / "outbox", Path("/dev/full")):
            with pytest.raises(OutboxFailedError, match=str(path)):
                await shop.producer.send_to(AWAY, HELLO, on_unavailable=Park(Outbox(path)))


async def test_a_parked_message_survives_its_sender_being_cancelled(
    server: ScriptedRouteServer, tmp_path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(tmp_path / "outbox"))) as shop:
        shop.transport.unreachable(A)
        await shop.producer.send_to(A0, numbered(0))
        sending = asyncio.create_task(shop.producer.send_to(A0, numbered(1)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        shop.transport.recover(A)
        await shop.producer.send_to(A0, numbered(2))
        await parked(shop, 0)

        assert bodies(shop, A0) == [b"0", b"1", b"2"]
