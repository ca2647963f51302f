"""The order of a key with parked messages: queues are added or removed, the producer restarts, maps have sub-shards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman_client.core.message import Message
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.sharding import SubShards
from pointsman_client.errors import QueueUnavailableError
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer_options import Park
from tests.kit.client.producing import A, B, Shop, producing, put_route
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, scripted_route_server
from tests.kit.waiting import eventually

KEYS = [f"key-{number}" for number in range(24)]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        put_route(server, "a", "b", write=2)
        yield server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox"


async def send(shop: Shop, key: str, number: int, *, second: str | None = None) -> MessageQueue:
    """Send message ``number`` of a key; return the queue it was sent to, or is parked for."""
    message = Message("orders", str(number).encode(), keys=(f"{key}/{second}" if second else key,))
    return (await shop.producer.send_by_key(message, key, second=second)).queue


async def set_route(shop: Shop, *brokers: str, write: int) -> None:
    put_route(shop.server, *brokers, write=write)
    await known(shop, len(brokers) * write)


async def known(shop: Shop, queues: int) -> None:
    """Refresh until the route has this number of writable queues: a refresh may join one that began before."""
    for _ in range(5):
        await shop.producer.client.refresh("orders")
        if len(await shop.producer.client.publish_queues("orders")) == queues:
            return
    raise AssertionError(await shop.producer.client.publish_queues("orders"))


async def parked(shop: Shop, count: int) -> None:
    """Advance the clock until ``count`` messages are parked."""
    await eventually(lambda: shop.producer.parked == count, clock=shop.clock, step=0.5)


def numbers(shop: Shop, key: str) -> list[tuple[MessageQueue, int]]:
    """The messages of a key with their queues, in the order of sending as far as they are in one queue."""
    return [
        (queue, int(each.message.body))
        for queue, messages in shop.transport.written.items()
        for each in messages
        if each.message.keys == (key,)
    ]


async def keys_of_a(shop: Shop) -> dict[str, MessageQueue]:
    """Send message 0 of each key, and make broker a unreachable; return the keys whose queue is there."""
    queues = {key: await send(shop, key, 0) for key in KEYS}
    shop.transport.unreachable(A)
    return {key: queue for key, queue in queues.items() if queue.broker_name == "a"}


async def test_a_key_with_parked_messages_keeps_its_queue_when_queues_are_added(
    server: ScriptedRouteServer, path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = await keys_of_a(shop)
        assert {key: await send(shop, key, 1) for key in old} == old
        await set_route(shop, "a", "b", write=6)
        assert {key: await send(shop, key, 2) for key in old} == old
        for key in old:
            with pytest.raises(QueueUnavailableError):
                await shop.producer.send_by_key(Message("orders", b"3"), key, on_unavailable="raise")

        shop.transport.recover(A)
        await parked(shop, 0)
        assert {key: numbers(shop, key) for key in old} == {
            key: [(queue, number) for number in range(3)] for key, queue in old.items()
        }
        moved = {key for key, queue in old.items() if await send(shop, key, 3) != queue}
        assert moved
        assert not [key for key in old if await send(shop, key, 4) in old.values() and key in moved]


async def test_keys_without_parked_messages_use_the_added_queues(server: ScriptedRouteServer, path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = await keys_of_a(shop)
        first = next(iter(old))
        await send(shop, first, 1)
        await set_route(shop, "a", "b", write=6)
        shop.transport.recover(A)
        assert any([await send(shop, key, 1) != queue for key, queue in old.items() if key != first])


@pytest.mark.parametrize("again_as", ["option", "call"])
async def test_the_keys_of_an_outbox_are_known_after_a_restart(
    server: ScriptedRouteServer, path: Path, again_as: str
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = await keys_of_a(shop)
        for key in old:
            await send(shop, key, 1)

    put_route(server, "b", write=6)  # broker a is down, broker b has more queues
    park = Park(Outbox(path))
    async with producing(server, **({"on_unavailable": park} if again_as == "option" else {})) as shop:
        for key, queue in old.items():
            message = Message("orders", b"2", keys=(key,))
            result = await shop.producer.send_by_key(message, key, on_unavailable=park)
            assert (result.queue, result.is_parked) == (queue, True)
        await set_route(shop, "a", "b", write=6)
        await parked(shop, 0)
        assert {key: numbers(shop, key) for key in old} == {key: [(q, 1), (q, 2)] for key, q in old.items()}


async def test_a_key_is_parked_after_a_restart_while_its_topic_has_no_route(
    server: ScriptedRouteServer, path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        shop.transport.unreachable(A, B)
        queue = await send(shop, "key", 0)
    del server.routes["orders"]
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        assert await send(shop, "key", 1) == queue
        await set_route(shop, "a", "b", write=6)
        await parked(shop, 0)
        assert numbers(shop, "key") == [(queue, 0), (queue, 1)]


async def test_sub_shards_keep_their_queues_each_for_itself(server: ScriptedRouteServer, path: Path) -> None:
    spread = SubShards({"big": 4})
    seconds = [str(number) for number in range(12)]
    async with producing(server, sharding=spread, on_unavailable=Park(Outbox(path))) as shop:
        queues = {second: await send(shop, "big", 0, second=second) for second in seconds}
        shop.transport.unreachable(A)
        old = {second: queue for second, queue in queues.items() if queue.broker_name == "a"}
        assert 0 < len(old) < len(seconds)
        for second in old:
            await send(shop, "big", 1, second=second)
        ordinary = {key: await send(shop, key, 0, second="x") for key in KEYS}
        kept = {key: queue for key, queue in ordinary.items() if queue.broker_name == "a"}
        await set_route(shop, "a", "b", write=9)
        assert {second: await send(shop, "big", 2, second=second) for second in old} == old
        # Of keys without sub-shards the second value is ignored.
        assert {key: await send(shop, key, 1, second="y") for key in kept} == kept
        # Without a second value there is no order to keep.
        round_robin = {await send(shop, "big", 3) for _ in range(8)}
        assert len(round_robin) == 4
        shop.transport.recover(A)
        await parked(shop, 0)
        for second, queue in old.items():
            assert numbers(shop, f"big/{second}") == [(queue, 0), (queue, 1), (queue, 2)]


async def test_parked_messages_follow_their_key_when_their_queue_was_removed(
    server: ScriptedRouteServer, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = {key: queue for key, queue in (await keys_of_a(shop)).items() if queue.queue_id == 1}
        assert old
        for key in old:
            await send(shop, key, 1)
        await set_route(shop, "a", "b", write=1)
        for key in old:
            await send(shop, key, 2)
        shop.transport.recover(A)
        await parked(shop, 0)
        for key, queue in old.items():
            (_, first), (second, one), (third, two) = sorted(numbers(shop, key), key=lambda each: each[1])
            assert (first, one, two) == (0, 1, 2)
            assert second == third != queue
            assert await send(shop, key, 3) == third
        assert "follow their keys to other queues: queue 1 of orders on c1/a was removed" in caplog.text


async def test_a_queue_without_permission_or_route_is_waited_for(server: ScriptedRouteServer, path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = await keys_of_a(shop)
        shop.transport.recover(A)
        for brokers, perm in (("ab", 4), ("b", 6)):
            put_route(server, *brokers, write=2, perm=perm)
            await known(shop, 2 if perm == 6 else 0)
            assert {key: await send(shop, key, 1) for key in old} == old
            await shop.clock.advance(3.0)
            assert shop.producer.parked >= len(old)
        await set_route(shop, "a", "b", write=2)
        await parked(shop, 0)
        assert {queue for key in old for queue, _ in numbers(shop, key)} == set(old.values())


async def test_parked_messages_leave_a_broker_that_the_application_declares_removed(
    server: ScriptedRouteServer, path: Path
) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        old = await keys_of_a(shop)
        for key in old:
            await send(shop, key, 1)
    put_route(server, "b", write=2)
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        for key in old:
            await send(shop, key, 2)
        assert shop.producer.parked == 2 * len(old)
        shop.producer.drop_absent_brokers("orders")
        await parked(shop, 0)
        for key in old:
            (first, one), (second, two) = numbers(shop, key)
            assert (first, one, two) == (second, 1, 2)
            assert first.broker_name == "b"


async def test_a_message_without_a_key_waits_for_its_own_queue(server: ScriptedRouteServer, path: Path) -> None:
    async with producing(server, on_unavailable=Park(Outbox(path))) as shop:
        shop.transport.unreachable(A)
        queue = MessageQueue("orders", "c1", "a", 1)
        await shop.producer.send_to(queue, Message("orders", b"0"))
        await set_route(shop, "a", "b", write=1)
        shop.producer.drop_absent_brokers("orders")
        await shop.clock.advance(3.0)
        assert shop.producer.parked == 1
        shop.transport.recover(A)
        await set_route(shop, "a", "b", write=2)
        await parked(shop, 0)
