"""A Redis broker and a RocketMQ broker with the same topics, in one name server, for commands about messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc.aio

from pointsman.clock import SystemClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client import Message, MessageQueue, OutgoingMessage, Transport
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_ctl.options.access_options import Access
from pointsman_ctl.options.invocation import Invocation
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.agent.in_route import WholeAgent
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.broker.under_test import BORN_AT
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server

SECONDS = 10.0
QUEUES = 2


@dataclass
class BothBrokers:
    """``red``, a Redis server whose agent registered it, and ``rocket``, which registered itself; both of ``c1``."""

    name_server: NameServerApp
    history: Path
    """Its rows."""
    redis: RedisProcess
    agent: WholeAgent
    """Of ``red``."""
    rocketmq: FakeBroker
    connections: AsyncExitStack
    """Closed before the servers end."""
    transports: dict[str, Transport] = field(default_factory=dict)

    @property
    def addrs(self) -> dict[str, str]:
        """The brokers' addresses by name."""
        return {"red": self.redis.addr, "rocket": self.rocketmq.addr}

    def invocation(self, access: Access | None = None, *, seconds: float = SECONDS) -> Invocation:
        """What a command gets."""
        return Invocation((self.name_server.addr,), "table", seconds, access or Access())

    async def ctl(self, *arguments: str, **more: Any) -> Ended:
        return await ctl("--namesrv", self.name_server.addr, "--timeout", str(SECONDS), *arguments, **more)

    async def json(self, *arguments: str, **more: Any) -> Any:
        ended = await self.ctl("-o", "json", *arguments, **more)
        assert (ended.code, ended.err) == (0, "")
        return ended.document

    async def store(self, name: str, queue_id: int, *bodies: bytes, topic: str = "orders", **more: Any) -> None:
        """Have a producer's messages in a queue of a broker; ``more``: fields of a message, and ``born_at``."""
        born_at: datetime = more.pop("born_at", BORN_AT)
        for body in bodies:
            sent = OutgoingMessage(Message(topic, body, **more), f"id-{name}-{body[:40].hex()}", born_at)
            queue = MessageQueue(topic, "c1", name, queue_id)
            await self.transports[name].send(self.addrs[name], queue, [sent], timeout_seconds=SECONDS)


@asynccontextmanager
async def both_brokers(folder: Path, *, topics: Sequence[str] = ("orders",)) -> AsyncIterator[BothBrokers]:
    """Serve both for the length of the block; each topic has QUEUES queues on each."""
    history = folder / "history"
    async with (
        running_name_server(history=history, remoting=RemotingConfig(listen="127.0.0.1:0")) as server,
        redis_process(folder / "redis") as redis,
        FakeBroker() as rocketmq,
        AsyncExitStack() as stack,
    ):
        agent = WholeAgent("red", broker_id=0, clock=SystemClock(), name_servers=[server.addr], warm_up=0.0)
        await agent.start()
        stack.push_async_callback(agent.stop)
        peer = await stack.enter_async_context(remoting_peer(server.remoting_addr))
        async with grpc.aio.insecure_channel(server.addr) as channel:
            request = wire.registration(
                *(wire.topic(topic, QUEUES) for topic in topics),
                who=wire.identity("red", addr=redis.addr),
                agent_version="0.2.0",
                agent_addr=agent.addr,
            )
            await RegistrationServiceStub(channel).RegisterBroker(request)
        queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        rocketmq.answers[Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = Answer(body=b'{"subscriptionGroupTable":{}}')
        rocketmq.answers[Request.QUERY_TOPIC_CONSUME_BY_WHO] = Answer(body=b'{"groupList":[]}')
        # A name server refuses a first registration with one topic.
        body = register_body({topic: topic_config(topic, **queues) for topic in (*topics, "another")})
        peer.send(register(broker_ext("rocket", 0, rocketmq.addr, clusterName="c1"), body))
        assert (await peer.answer()).code == 0
        found = BothBrokers(server, history, redis, agent, rocketmq, stack)
        found.transports = {"red": RedisStreamsTransport(), "rocket": RocketmqTransport()}
        try:
            yield found
        finally:
            for transport in found.transports.values():
                await transport.close()
