"""An order configuration with more queues than the topic has: rejected where it is set, and never sent to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio
import pytest

from pointsman.v1.admin_service_pb2 import GetNodeInfoRequest, PutKvRequest
from pointsman.v1.admin_service_pb2_grpc import AdminServiceStub
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client.core.message import Message
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerRefusedError
from pointsman_client.memory import MemoryTransport
from pointsman_client.producer.producer import Producer
from tests.kit.agent.in_process import PATIENCE_SECONDS
from tests.kit.ctl.command import ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.wire import identity, registration, topic

ADDR = "10.0.0.1:10911"
SENDS = 20


@dataclass
class Rig:
    """A name server, a broker name that the test registers, and its memory."""

    addr: str
    channel: grpc.aio.Channel
    transport: MemoryTransport

    async def register(self, queues: int) -> None:
        """Register ``broker-a`` with ``queues`` queues of ``orders``, as its agent does."""
        self.transport.set_queues(ADDR, {"orders": queues})
        orders = topic("orders", queues)
        await RegistrationServiceStub(self.channel).RegisterBroker(
            registration(orders, who=identity("broker-a", addr=ADDR), version=(0, 0, queues))
        )

    async def set_conf(self, conf: str) -> None:
        request = PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value=conf, by="ann")
        await AdminServiceStub(self.channel).PutKv(request)

    async def problems(self) -> Sequence[str]:
        return (await AdminServiceStub(self.channel).GetNodeInfo(GetNodeInfoRequest())).complaints

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Producer]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Producer([self.addr], transport=self.transport) as producer:
                yield producer


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running_name_server() as app, grpc.aio.insecure_channel(app.addr) as channel:
        yield Rig(app.addr, channel, MemoryTransport())


async def queues_of_sends(producer: Producer) -> set[int]:
    """The queues that messages went to, without a key and with many keys; each send succeeds."""
    plain = [await producer.send(Message("orders", b"x")) for _ in range(SENDS)]
    keyed = [await producer.send_by_key(Message("orders", b"x"), f"key-{number}") for number in range(SENDS)]
    return {result.queue.queue_id for result in (*plain, *keyed)}


async def test_a_configuration_beyond_the_topic_is_rejected_with_broker_and_both_numbers(rig: Rig) -> None:
    await rig.register(2)

    refused = await ctl("--namesrv", rig.addr, "order-topic", "set", "orders", "broker-a:5", "--yes")

    assert refused.code == 1
    assert "configures 5 queues of topic orders on broker broker-a, which has 2" in refused.err
    assert (await ctl("--namesrv", rig.addr, "order-topic", "set", "orders", "broker-a:2", "--yes")).code == 0


async def test_queues_beyond_the_topic_get_no_message_where_the_configuration_came_before_the_broker(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.set_conf("broker-a:5")
    assert await rig.problems() == []
    await rig.register(2)
    assert "5 queues on broker broker-a, which has 2" in (await rig.problems())[0]

    async with rig.producer() as producer:
        assert await queues_of_sends(producer) == {0, 1}
    warnings = [each.message for each in caplog.records if "has more queues than its brokers" in each.message]
    assert len(warnings) == 1
    assert "broker-a: 5 configured, 2 available" in warnings[0]


async def test_queues_that_a_topic_lost_by_shrinking_get_no_message(rig: Rig) -> None:
    await rig.register(2)
    await rig.set_conf("broker-a:2")
    async with rig.producer() as producer:
        assert await queues_of_sends(producer) == {0, 1}

        await rig.register(1)
        while (await producer.client.topic_route("orders")).queue_datas[0].write_queue_nums != 1:
            await producer.client.refresh("orders")

        assert await queues_of_sends(producer) == {0}


async def test_the_queues_are_used_as_soon_as_the_topic_has_grown_to_its_configuration(rig: Rig) -> None:
    await rig.set_conf("broker-a:3")
    await rig.register(1)
    async with rig.producer() as producer:
        assert await queues_of_sends(producer) == {0}

        await rig.register(3)
        while (await producer.client.topic_route("orders")).queue_datas[0].write_queue_nums != 3:
            await producer.client.refresh("orders")

        assert await queues_of_sends(producer) == {0, 1, 2}
    assert await rig.problems() == []


async def test_a_broker_in_memory_refuses_a_queue_beyond_its_topic() -> None:
    transport = MemoryTransport()
    transport.set_queues(ADDR, {"orders": 1})
    beyond, other = MessageQueue("orders", "c1", "a", 1), MessageQueue("%RETRY%g", "c1", "a", 15)

    with pytest.raises(BrokerRefusedError, match="queue 1 is beyond the 1 queues of topic orders"):
        await transport.send(ADDR, beyond, [], timeout_seconds=1.0)
    await transport.send(ADDR, other, [], timeout_seconds=1.0)
