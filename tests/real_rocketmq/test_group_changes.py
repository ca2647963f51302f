"""``pointsmanctl group set`` and ``group delete`` on real brokers, as ``mqadmin`` and a consumer see the result."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from deploy.demo.processes import ProcessFailed
from deploy.rocketmq.processes import RocketMQ, free_port
from pointsman_client import ConsumeFrom, ConsumeResult, Message, Producer, PushConsumer
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.ctl.command import Ended, ctl
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "Bills"


@dataclass
class Brokers:
    """One broker, registered at a name server of Pointsman and at one of RocketMQ."""

    grpc_addr: str
    rocketmq_addr: str
    mq: RocketMQ
    java: RocketMQ
    """mqadmin at RocketMQ's name server."""

    async def ctl(self, *arguments: str, addr: str = "") -> Ended:
        return await ctl("--namesrv", addr or self.grpc_addr, "--timeout", "20", *arguments)

    async def admin(self, *command: str) -> str:
        return await asyncio.to_thread(self.java.admin, *command)

    async def is_routed(self, topic: str) -> bool:
        """Whether RocketMQ's name server has a route of a topic."""
        return (await self.ctl("route", topic, addr=self.rocketmq_addr)).code == 0


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder, lib = tmp_path_factory.mktemp("groups"), jars.of(request.param)
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        pointsman = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(pointsman.stop)
        java = NameServer(f"127.0.0.1:{free_port()}")
        mq = RocketMQ(lib, folder / lib.name, f"{pointsman.addr};{java.addr}")
        stack.callback(mq.name_server(java.addr).end)
        until(java.is_there, what="RocketMQ's name server")
        mq.topics_on_disk("a", 0, [TOPIC])
        stack.callback(mq.broker("a").end)
        for each in (pointsman, java):
            until(lambda: each.addrs("a") and each.perms(TOPIC), what=f"the broker at {each.addr}")  # noqa: B023
        yield Brokers(addr, f"rocketmq://{java.addr}", mq, RocketMQ(lib, folder / "java", java.addr))


async def consumed(brokers: Brokers, group: str) -> None:
    """Have a group with an offset, a retry topic and a dead letter, and no member."""
    letters: list[bytes] = []

    def refuse(message: object) -> ConsumeResult:
        letters.append(getattr(message, "body", b""))
        return ConsumeResult.DEAD_LETTER

    async with Producer(brokers.grpc_addr, transport=RocketmqTransport) as producer:
        await producer.send(Message(TOPIC, b"one"))
    async with PushConsumer(
        brokers.grpc_addr,
        group=group,
        subscriptions={TOPIC: "*"},
        listener=refuse,
        transport=RocketmqTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await eventually(lambda: letters)
        busy = await brokers.ctl("group", "delete", group, "--yes")
    assert busy.code == 1
    assert f"consumer group {group} has 1 member: " in busy.err
    await read_until(lambda: brokers.is_routed(f"%DLQ%{group}"), bool)


@pytest.mark.parametrize("through", ["pointsman", "rocketmq"])
async def test_a_deleted_group_is_gone_for_mqadmin_too(brokers: Brokers, through: str) -> None:
    group, addr = f"retired-{through}", {"pointsman": brokers.grpc_addr, "rocketmq": brokers.rocketmq_addr}[through]
    await consumed(brokers, group)
    refused = await brokers.ctl("group", "delete", group, "--yes", addr=addr)
    before = await brokers.admin("consumerProgress", "-g", group)
    made = await brokers.ctl("group", "delete", group, "--yes", "--delete-messages", addr=addr)
    again = await brokers.ctl("group", "delete", group, "--yes", addr=addr)

    assert refused.code == 1
    # Both tests send a message, and each group reads them all.
    assert re.search(rf"\b[12] dead letters? of group {group} would be lost", refused.err)
    assert TOPIC in before
    assert made.code == 0, made.err
    assert f"group {group} deleted, with its offsets, retries and dead letters\n" in made.out
    assert again.code == 1
    assert f"nothing of group {group} is at C/a/0" in again.err
    if through == "rocketmq":
        assert not await brokers.is_routed(f"%RETRY%{group}")
        assert not await brokers.is_routed(f"%DLQ%{group}")
    try:
        after = await brokers.admin("consumerProgress", "-g", group)
    except ProcessFailed as failed:
        after = str(failed)
    assert not re.search(rf"^{TOPIC}\b", after, re.MULTILINE)


async def test_settings_are_those_that_mqadmin_reads_and_the_others_stay(brokers: Brokers) -> None:
    await brokers.admin("updateSubGroup", "-c", "C", "-g", "tuned", "-r", "9", "-q", "3", "-s", "true")
    made = await brokers.ctl("group", "set", "tuned", "--retry-max", "5", "--no-notify", "--yes")
    again = await brokers.ctl("group", "set", "tuned", "--retry-max", "5", "--no-notify", "--yes")

    assert made.code == 0, made.err
    assert "retries at most 9" in made.out
    assert (again.code, again.out.count("retries at most 5")) == (0, 2)
    printed = await brokers.admin("getConsumerConfig", "-g", "tuned")
    found = dict(re.findall(r"^\s*(\w+)\s*=\s*(\S+)\s*$", printed, re.MULTILINE))
    assert (found["retryMaxTimes"], found["notifyConsumerIdsChangedEnable"]) == ("5", "false")
    assert (found["retryQueueNums"], found["consumeEnable"]) == ("3", "true")
