"""Sends to topics that do not exist, at brokers that create topics, and at others."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import grpc
import pytest

from pointsman.wire.error_details import ErrorDetails
from pointsman_client.core.message import Message
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import (
    AccessDeniedError,
    NameServersUnavailableError,
    QueueUnavailableError,
    ResponseCode,
    SendFailedError,
    TopicNotFoundError,
)
from pointsman_client.producer.new_topics import MAX_TOPICS, VALID_SECONDS, NewTopics
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer_options import Fallback, Park
from tests.kit.client.producing import A, B, producing, put_route
from tests.kit.client.scripted_transport import ScriptedTransport
from tests.kit.name_server.scripted_routes import ScriptedRouteServer, scripted_route_server

DEFAULT = "TBW102"
NEW = Message("new", b"x")


class CreatingTransport(ScriptedTransport):
    """Its brokers may create topics, with up to four queues."""

    default_topic = DEFAULT
    default_topic_queue_nums = 4


def on_a(queues: tuple[MessageQueue, ...], *_: object) -> MessageQueue:
    return next(queue for queue in queues if queue.broker_name == "a")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRouteServer]:
    async with scripted_route_server() as server:
        put_route(server, "a", "b", topic="orders")
        yield server


async def test_a_new_topic_has_the_queues_that_brokers_create(server: ScriptedRouteServer) -> None:
    put_route(server, "a", "b", topic=DEFAULT, read=8, write=8, perm=7)
    async with producing(server, transport=CreatingTransport()) as shop:
        places = {(await shop.producer.send(NEW)).queue for _ in range(8)}

        assert {queue.topic for queue in places} == {"new"}
        assert {(queue.broker_name, queue.queue_id) for queue in places} == {
            (name, n) for name in "ab" for n in range(4)
        }
        # For half a minute, neither topic is looked up again.
        assert server.lookups["new"] == server.lookups[DEFAULT] == 1
        await shop.clock.advance(VALID_SECONDS)
        await shop.producer.send(NEW)
        assert server.lookups["new"] > 1


async def test_every_way_to_send_that_needs_no_key_accepts_a_new_topic(server: ScriptedRouteServer) -> None:
    put_route(server, "a", topic=DEFAULT, perm=7, write=1)
    async with producing(server, transport=CreatingTransport()) as shop:
        chosen = await shop.producer.send_selected(NEW, lambda queues, *_: queues[0])
        assert (await shop.producer.send_to(chosen.queue, NEW)).queue == chosen.queue
        await shop.producer.send_batch([NEW, NEW])
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send_by_key(NEW, "4711")
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send_to(replace(chosen.queue, queue_id=1), NEW)


async def test_the_route_of_the_topic_replaces_that_of_the_default_topic(server: ScriptedRouteServer) -> None:
    put_route(server, "a", "b", topic=DEFAULT, perm=7, write=1)
    async with producing(server, transport=CreatingTransport()) as shop:
        assert {(await shop.producer.send(NEW)).queue.broker_name for _ in range(2)} == {"a", "b"}
        put_route(server, "b", topic="new", write=1)
        await shop.producer.client.refresh("new")
        assert {(await shop.producer.send(NEW)).queue.broker_name for _ in range(4)} == {"b"}


@pytest.mark.parametrize("perm", [None, 6, 4])
async def test_without_a_broker_that_creates_topics_a_topic_is_unknown_and_that_is_remembered(
    server: ScriptedRouteServer, perm: int | None
) -> None:
    if perm is not None:
        put_route(server, "a", topic=DEFAULT, perm=perm)
    transport = CreatingTransport()
    async with producing(server, transport=transport) as shop:
        for number in range(5):
            with pytest.raises(TopicNotFoundError, match=f"topic new-{number} has no route"):
                await shop.producer.send(Message(f"new-{number}", b"x"))
        assert server.lookups[DEFAULT] == 1
        assert transport.calls == []


async def test_other_transports_never_ask_for_the_default_topic(server: ScriptedRouteServer) -> None:
    put_route(server, "a", topic=DEFAULT, perm=7)
    async with producing(server) as shop:
        with pytest.raises(TopicNotFoundError):
            await shop.producer.send(NEW)
        assert server.lookups[DEFAULT] == 0


async def test_a_broker_that_does_not_create_the_topic_is_not_isolated(server: ScriptedRouteServer) -> None:
    put_route(server, "a", "b", topic=DEFAULT, perm=7)
    transport = CreatingTransport()
    async with producing(server, transport=transport) as shop:
        transport.refuse(ResponseCode.TOPIC_NOT_EXIST, A, B)
        with pytest.raises(SendFailedError) as failure:
            await shop.producer.send(NEW)
        assert len(failure.value.tries) == 3
        assert shop.heard.isolations == []
        # As before for topics that exist.
        with pytest.raises(SendFailedError):
            await shop.producer.send(Message("orders", b"x"))
        assert {broker for broker, _ in shop.heard.isolations} == {"a", "b"}


async def test_a_message_for_a_new_topic_is_not_parked(server: ScriptedRouteServer, tmp_path: Path) -> None:
    """Its queue may never exist: each broker that gets a message creates the topic, the others do not."""
    put_route(server, "a", "b", topic=DEFAULT, perm=7)
    transport = CreatingTransport()
    outbox = Park(Outbox(tmp_path / "outbox"))
    async with producing(server, transport=transport, on_unavailable=outbox) as shop:
        transport.unreachable(A)
        with pytest.raises(QueueUnavailableError):
            await shop.producer.send_selected(NEW, on_a)
        transport.refuse(ResponseCode.TOPIC_NOT_EXIST, A)
        with pytest.raises(QueueUnavailableError):
            await shop.producer.send_selected(NEW, on_a)
        transport.late(A)
        with pytest.raises(SendFailedError):
            await shop.producer.send_selected(NEW, on_a)
        assert shop.producer.parked == 0


async def test_a_fallback_uses_another_broker_that_creates_the_topic(server: ScriptedRouteServer) -> None:
    put_route(server, "a", "b", topic=DEFAULT, perm=7)
    transport = CreatingTransport()
    fallback = Fallback(lambda queue, writable: next(each for each in writable if each.broker_key != queue.broker_key))
    async with producing(server, transport=transport, on_unavailable=fallback) as shop:
        transport.unreachable(A)
        assert (await shop.producer.send_selected(NEW, on_a)).queue.broker_name == "b"


async def test_a_failed_lookup_of_the_default_topic_is_not_remembered(server: ScriptedRouteServer) -> None:
    put_route(server, "a", topic=DEFAULT, perm=7)
    async with producing(server, transport=CreatingTransport()) as shop:
        client = shop.producer.client
        with pytest.MonkeyPatch.context() as patched:
            failed = NameServersUnavailableError([])
            patched.setattr(client, "topic_route", AsyncMock(side_effect=failed))
            with pytest.raises(NameServersUnavailableError):
                await shop.producer.send(NEW)
        assert (await shop.producer.send(NEW)).queue.broker_name == "a"


async def test_an_account_that_may_not_read_the_default_topic_creates_no_topics(server: ScriptedRouteServer) -> None:
    async with producing(server, transport=CreatingTransport()) as shop:
        denied = AccessDeniedError("ns1:1", grpc.StatusCode.PERMISSION_DENIED, "no", ErrorDetails())
        lookup = AsyncMock(side_effect=denied)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(shop.producer.client, "topic_route", lookup)
            for _ in range(2):
                with pytest.raises(TopicNotFoundError, match="topic new has no route"):
                    await shop.producer.send(NEW)
        lookup.assert_awaited_once_with(DEFAULT)


async def test_a_new_topic_is_used_further_while_no_name_server_responds(server: ScriptedRouteServer) -> None:
    put_route(server, "a", topic=DEFAULT, perm=7, write=1)
    async with producing(server, transport=CreatingTransport()) as shop:
        await shop.producer.send(NEW)
        server.fail_with(grpc.StatusCode.UNAVAILABLE)
        await shop.clock.advance(VALID_SECONDS)
        assert (await shop.producer.send(NEW)).queue.broker_name == "a"
        with pytest.raises(NameServersUnavailableError):
            await shop.producer.send(Message("other", b"x"))


async def test_the_number_of_new_topics_is_bounded(server: ScriptedRouteServer) -> None:
    put_route(server, "a", topic=DEFAULT, perm=7)
    async with producing(server, transport=CreatingTransport()) as shop:
        topics = NewTopics(shop.producer.client, CreatingTransport(), clock=shop.clock)
        names = [f"t-{number}" for number in range(MAX_TOPICS + 1)]
        random.Random(1).shuffle(names)
        for name in names:
            await topics.queues(name)
        assert [name for name in names if not topics.known_queues(name)] == names[:1]
