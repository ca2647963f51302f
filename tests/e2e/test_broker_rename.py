"""A broker gets another name, or moves to another cluster, under running producers and ordered consumers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pointsman_agent.config import AgentConfig
from pointsman_client.client import NameServerClient
from pointsman_client.consumer.push_consumer import PushConsumer
from pointsman_client.core.message import Message, ReceivedMessage
from pointsman_client.core.rebalance import ConsumeFrom
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.producer.producer import Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.process import AgentProcess, agent_process
from tests.kit.broker.redis.process import free_port, redis_process
from tests.kit.broker.redis.with_agent import BrokerPlan, agent_config, redis_broker
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.name_server.view import look
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(240)]

PATIENCE_SECONDS = 90.0
CONSUMERS = 3
QUEUES = 4
WARM_UP_SECONDS = 2.0
SETTLED_SECONDS = 4.0
"""Time under load with the new name."""
KEPT = ("broker-a", "c1")
"""A broker that is not renamed."""


@dataclass
class Log:
    """What the listeners of all members were given, by the queue on the broker, whatever its name."""

    bodies: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    out_of_order: int = 0
    _running: Counter[tuple[bool, int]] = field(default_factory=Counter)
    repeated_of_renamed: list[str] = field(default_factory=list)
    """Repeats from the broker that was renamed."""
    _last: dict[tuple[bool, int], int] = field(default_factory=dict)

    async def __call__(self, message: ReceivedMessage) -> None:
        queue = (message.queue.broker_name == KEPT[0], message.queue.queue_id)
        body = message.body.decode()
        self.overlaps += self._running[queue] > 0
        if self.bodies[body] and not queue[0]:
            self.repeated_of_renamed.append(body)
        if not self.bodies[body]:
            self.out_of_order += message.queue_offset < self._last.get(queue, 0)
            self._last[queue] = message.queue_offset
        self._running[queue] += 1
        try:
            await asyncio.sleep(0.001)
        finally:
            self._running[queue] -= 1
            self.bodies[body] += 1


@dataclass
class Load:
    """A producer that sends until it is stopped."""

    producer: Producer
    sent: list[str] = field(default_factory=list)
    failed: int = 0
    stopped: bool = False

    async def run(self) -> None:
        while not self.stopped:
            bodies = [f"{len(self.sent) + number}" for number in range(4)]
            results = await asyncio.gather(*(self.producer.send(Message("orders", body.encode())) for body in bodies))
            self.failed += sum(result.status is not SendStatus.SEND_OK for result in results)
            self.sent += bodies
            await asyncio.sleep(0.01)


@dataclass
class Fleet:
    """Two name servers, two brokers, three ordered members of a group, and a producer under load."""

    servers: Sequence[RealNameServer]
    folder: Path
    config: AgentConfig
    agent: AgentProcess
    members: Sequence[PushConsumer]
    log: Log
    load: Load

    def held(self) -> list[tuple[str, str, int]]:
        queues = [each for member in self.members for each in member.describe()["queues"] if each["topic"] == "orders"]
        return sorted((each["cluster"], each["brokerName"], each["queueId"]) for each in queues)


@asynccontextmanager
async def under_load(tmp_path: Path) -> AsyncIterator[Fleet]:
    log = Log()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        servers = [await enter(real_name_server(tmp_path / name, node=name)) for name in ("ns1", "ns2")]
        addrs = [server.addr for server in servers]
        kept = BrokerPlan(KEPT[0], agent_port=free_port(), warm_up_seconds=WARM_UP_SECONDS)
        await enter(redis_broker(tmp_path / "a", kept, addrs))
        redis = await enter(redis_process(tmp_path / "b"))
        plan = BrokerPlan("broker-b", agent_port=free_port(), warm_up_seconds=WARM_UP_SECONDS)
        config = agent_config(plan, redis.addr, addrs)
        agent = await enter(agent_process(tmp_path / "agent", config))
        client = await enter(NameServerClient(addrs))
        producer = await enter(Producer(client, transport=RedisStreamsTransport))
        members = [
            await enter(
                PushConsumer(
                    addrs,
                    group="billing",
                    subscriptions={"orders": "*"},
                    listener=log,
                    transport=RedisStreamsTransport,
                    ordered=True,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                )
            )
            for _ in range(CONSUMERS)
        ]
        load = Load(producer)
        fleet = Fleet(servers, tmp_path, config, agent, members, log, load)
        await eventually(lambda: len(set(fleet.held())) == 2 * QUEUES, seconds=PATIENCE_SECONDS)
        sending = asyncio.create_task(load.run())
        try:
            await eventually(lambda: len(load.sent) >= 200, seconds=PATIENCE_SECONDS)
            yield fleet
        finally:
            load.stopped = True
            await sending


async def routed(server: RealNameServer) -> list[tuple[str, str, str]]:
    async with look(server.addr) as view:
        return sorted(
            (each.identity.cluster, each.identity.broker_name, each.identity.addr) for each in await view.brokers()
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "name"), [("c1", "broker-new"), ("c2", "broker-b")], ids=["renamed", "moved to another cluster"]
)
async def test_a_renamed_broker_is_routed_once_and_its_messages_are_neither_lost_nor_overlap_nor_out_of_order(
    tmp_path: Path, cluster: str, name: str
) -> None:
    async with under_load(tmp_path) as fleet:
        await fleet.agent.stop()
        config = replace(fleet.config, broker=replace(fleet.config.broker, cluster=cluster, name=name))
        async with agent_process(tmp_path / "agent-new", config) as agent:
            here = sorted([(KEPT[1], KEPT[0]), (cluster, name)])
            for server in fleet.servers:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while (cluster, name, config.broker.addr) not in (now := await routed(server)):  # noqa: ASYNC110  # another process decides
                        await asyncio.sleep(0.02)
                assert [where[:2] for where in now] == here, "it is routed under both names"
            expected = sorted((*where, queue) for where in here for queue in range(QUEUES))
            await eventually(lambda: fleet.held() == expected, seconds=PATIENCE_SECONDS)
            await asyncio.sleep(SETTLED_SECONDS)
            fleet.load.stopped = True
            await eventually(lambda: set(fleet.load.sent) <= set(fleet.log.bodies), seconds=PATIENCE_SECONDS)
            await asyncio.sleep(1.0)
            log, sent = fleet.log, fleet.load.sent
            repeated = sum(log.bodies.values()) - len(log.bodies)
            figures = {"failed": fleet.load.failed, "overlaps": log.overlaps, "out of order": log.out_of_order}
            figures |= {"lost": len(set(sent) - set(log.bodies))}
            print(json.dumps({"sent": len(sent), "repeated": repeated} | figures))
            assert set(figures.values()) == {0}, figures
            # What was finished since the last commit, whose queue had the earlier name.
            assert max(log.bodies.values()) <= 2
            assert repeated == len(log.repeated_of_renamed)
            await eventually(lambda: all(server.events("UNREGISTERED") for server in fleet.servers), seconds=10.0)
            for server in fleet.servers:
                (ended,) = server.events("UNREGISTERED")
                assert (ended["reason"], ended["planned"], ended["state"]) == ("SUPERSEDED", True, "GONE")
                assert ended["detail"]["superseded_by"] == f"{cluster}/{name}/0"
            said = agent.said("the broker had another name or cluster; its earlier registration ended")
            assert [line["superseded"] for line in said] == [["c1/broker-b/0"]] * 2
