"""A producer with a real name server: brokers leave and return, and the watch reports it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import grpc.aio
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client.core.message import Message
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import NoBrokerUpError, TopicNotFoundError
from pointsman_client.producer.outbox import Outbox
from pointsman_client.producer.producer import Producer
from pointsman_client.producer.producer_options import Park
from tests.kit.client.producing import A, B
from tests.kit.client.scripted_transport import ScriptedTransport
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

HELLO = Message("orders", b"hello")
A0 = MessageQueue("orders", "c1", "a", 0)


async def test_a_broker_removed_from_the_routes_gets_nothing_and_the_parked_messages_when_it_is_back(
    tmp_path: Path,
) -> None:
    a, b = wire.identity("a", addr=A), wire.identity("b", addr=B)
    transport = ScriptedTransport()
    async with (
        running_name_server() as server,
        grpc.aio.insecure_channel(server.addr) as channel,
        Producer(
            [server.addr],
            transport=transport,
            on_unavailable=Park(Outbox(tmp_path / "outbox")),
            rng=random.Random(3),
        ) as producer,
    ):
        stub = RegistrationServiceStub(channel)
        generations = {
            who.broker_name: (await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=who))).generation
            for who in (a, b)
        }
        for _ in range(8):
            await producer.send(HELLO)
        assert {call.addr for call in transport.calls} == {A, B}

        await stub.UnregisterBroker(wire.unregistration(a, generations["a"]))
        await eventually(lambda: producer.client.broker("c1", "a") is None)
        transport.calls.clear()
        for _ in range(8):
            await producer.send(HELLO)
        assert {call.addr for call in transport.calls} == {B}
        assert (await producer.send_to(A0, HELLO)).is_parked
        before = len(transport.written[A0])

        await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=a, version=(0, 0, 2)))
        await eventually(lambda: not producer.parked)
        assert len(transport.written[A0]) == before + 1


async def test_a_topic_whose_brokers_are_all_down_is_an_outage_and_waited_for_within_the_send() -> None:
    clock, a = ManualClock(), wire.identity("a", addr=A)
    transport = ScriptedTransport()
    async with (
        running_name_server(clock=clock) as server,
        grpc.aio.insecure_channel(server.addr) as channel,
        Producer([server.addr], transport=transport, send_msg_timeout_seconds=30.0) as producer,
    ):
        stub = RegistrationServiceStub(channel)
        await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=a))
        await producer.send(HELLO)
        await clock.advance(200.0)
        await eventually(lambda: producer.client.broker("c1", "a") is None)
        with pytest.raises(
            NoBrokerUpError, match=r"no broker of topic orders is up: c1/a/0 SILENCE since 20"
        ) as failed:
            await producer.send(HELLO, timeout_seconds=0.5)
        assert failed.value.retriable
        (broker,) = failed.value.brokers
        assert (broker.broker_name, broker.addr, broker.is_registered, broker.reason) == ("a", A, False, "SILENCE")
        route = await producer.client.topic_route("orders")
        assert (route.queue_datas, route.absent_brokers) == ((), (broker,))
        assert await producer.client.subscribe_queues("orders") == ()
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message("unknown", b"hello"), timeout_seconds=0.5)

        # A broker that returns during the send accepts it.
        waiting = asyncio.ensure_future(producer.send(HELLO))
        await asyncio.sleep(0.05)
        transport.calls.clear()
        await stub.RegisterBroker(wire.registration(wire.topic("orders"), who=a))
        await clock.advance(1.0)
        await waiting
        assert [call.addr for call in transport.calls] == [A]
