"""``pointsmanctl topic`` on real brokers, under a Java producer and consumer, as mqadmin reads the result."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.rocketmq.processes import Broker, RocketMQ, failed, free_port, got, sent
from tests.kit.ctl.command import Ended, ctl
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(280)]

OTHER = "Others"
SENT = 400


@dataclass
class Brokers:
    """One broker, registered at a name server of Pointsman and at one of RocketMQ."""

    addr: str
    """Of Pointsman's name server."""
    rocketmq_addr: str
    mq: RocketMQ
    broker: Broker

    async def ctl(self, *arguments: str, name_server: str = "") -> Ended:
        return await ctl("--namesrv", name_server or self.addr, "--timeout", "20", *arguments)

    async def done(self, *arguments: str, name_server: str = "") -> Ended:
        ended = await self.ctl(*arguments, name_server=name_server)
        assert ended.code == 0, ended
        return ended

    async def status(self, topic: str) -> Any:
        (broker,) = (await self.done("-o", "json", "topic", "status", topic)).document["brokers"]
        return broker

    async def committed(self, group: str) -> int:
        """Sum of the offsets of a group, its retries aside."""
        ended = await self.ctl("-o", "json", "offsets", group)
        rows = ended.document["offsets"] if ended.code == 0 else []
        return sum(row["committedOffset"] for row in rows if not row["topic"].startswith("%"))

    def route(self, topic: str) -> list[int]:
        """Read and write queues and permission, as mqadmin reads them from the name servers; empty: no route."""
        printed = self.mq.admin("topicRoute", "-t", topic)
        # Not JSON: broker ids are keys without quotes.
        fields = [re.findall(rf'"{name}":(\d+)', printed) for name in ("readQueueNums", "writeQueueNums", "perm")]
        return [int(values[0]) for values in fields if values]

    async def reads(self, topic: str, wanted: tuple[int, int, int]) -> None:
        """Wait until mqadmin reads this route: brokers register in the background."""
        await eventually(lambda: self.route(topic) == list(wanted), seconds=60)

    def queue_ends(self, topic: str) -> dict[int, tuple[int, int]]:
        """First and last offset of each queue, as mqadmin reads them from the broker."""
        printed = self.mq.admin("topicStatus", "-t", topic)
        rows = re.findall(r"^a\s+(\d+)\s+(\d+)\s+(\d+)", printed, re.MULTILINE)
        return {int(queue): (int(first), int(end)) for queue, first, end in rows}


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("topics")
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        pointsman = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(pointsman.stop)
        java = NameServer(f"127.0.0.1:{free_port()}")
        mq = RocketMQ(lib, folder / lib.name, f"{pointsman.addr};{java.addr}")
        stack.callback(mq.name_server(java.addr).end)
        until(java.is_there, what="RocketMQ's name server")
        mq.topics_on_disk("a", 0, [OTHER])
        broker = mq.broker("a")
        stack.callback(broker.end)
        for each in (pointsman, java):
            until(lambda: each.addrs("a") and each.perms(OTHER), what=f"the broker at {each.addr}")  # noqa: B023
        yield Brokers(addr, f"rocketmq://{java.addr}", mq, broker)


@pytest.fixture
async def clients() -> AsyncIterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


async def test_a_topic_is_created_grows_and_shrinks_under_load_as_mqadmin_reads_it(
    brokers: Brokers, clients: ExitStack
) -> None:
    topic = "Bills"
    await brokers.done("topic", "create", topic, "--queues", "4", "--yes")
    await brokers.reads(topic, (4, 4, 6))
    consumer = brokers.mq.consumer(topic, group="billing")
    clients.callback(consumer.end)
    producer = brokers.mq.producer(topic, SENT, millis=50)
    clients.callback(producer.end)
    await eventually(lambda: len(got(consumer)) > 10, seconds=60)

    await brokers.done("topic", "alter", topic, "--queues", "8", "--yes")
    await brokers.reads(topic, (8, 8, 6))
    await eventually(lambda: len(sent(producer)) > 100, seconds=60)
    shrunk = await brokers.done("topic", "alter", topic, "--queues", "2", "--yes", "--quiet", "2s")
    await brokers.reads(topic, (2, 2, 6))
    assert "billing (1 member)" in shrunk.out
    await eventually(lambda: len(sent(producer)) + len(failed(producer)) >= SENT, seconds=90)
    await eventually(lambda: set(got(consumer)) == sent(producer), seconds=90)

    status = await brokers.status(topic)
    ends = {each["queueId"]: (each["minOffset"], each["maxOffset"]) for each in status["queues"]}
    assert ends == brokers.queue_ends(topic)
    assert all(each["lastWriteAt"] for each in status["queues"])


async def test_a_group_without_a_member_is_named_and_needs_force(brokers: Brokers, clients: ExitStack) -> None:
    topic = "Stuck"
    await brokers.done("topic", "create", topic, "--queues", "4", "--yes")
    consumer = brokers.mq.consumer(topic, group="absent")
    clients.callback(consumer.end)
    producer = brokers.mq.producer(topic, 40, millis=10)
    clients.callback(producer.end)
    await eventually(lambda: len(got(consumer)) == 40, seconds=60)
    # A client commits every 5 s; a group that has neither members nor offsets is not known to a broker.
    await read_until(lambda: brokers.committed("absent"), lambda count: count == 40, seconds=60)
    consumer.end(signal.SIGTERM)
    more = brokers.mq.producer(topic, 40, millis=10)
    clients.callback(more.end)
    await eventually(lambda: len(sent(more)) == 40, seconds=60)

    refused = await brokers.ctl("topic", "alter", topic, "--queues", "1", "--yes")
    assert refused.code == 1
    assert re.search(r"absent at C/a: has not committed \d+ messages, and has no member", refused.err)
    await brokers.reads(topic, (4, 4, 6))
    await brokers.done("topic", "alter", topic, "--queues", "1", "--yes", "--no-wait")
    await brokers.reads(topic, (4, 1, 6))
    await brokers.done("topic", "alter", topic, "--queues", "1", "--yes", "--force", "--quiet", "1s")
    await brokers.reads(topic, (1, 1, 6))


async def test_permission_and_deletion_are_those_that_mqadmin_reads(brokers: Brokers) -> None:
    topic = "Perms"
    await brokers.done("topic", "create", topic, "--queues", "3", "--yes")
    await brokers.done("topic", "perm", topic, "r", "--yes")
    await brokers.reads(topic, (3, 3, 4))
    await brokers.done("topic", "delete", topic, "--yes")
    for name_server in (brokers.addr, brokers.rocketmq_addr):
        listed = await brokers.done("topics", name_server=name_server)
        if name_server == brokers.addr:
            assert topic not in listed.out.split()
    assert (await brokers.ctl("topic", "status", topic)).code == 1
    again = await brokers.ctl("topic", "delete", topic, "--yes")
    assert (again.code, "no broker has topic Perms" in again.err) == (1, True)


async def test_rocketmq_name_servers_are_enough(brokers: Brokers) -> None:
    topic = "Alone"
    await brokers.done("topic", "create", topic, "--queues", "2", "--yes", name_server=brokers.rocketmq_addr)
    await brokers.reads(topic, (2, 2, 6))
    deleted = await brokers.done("topic", "delete", topic, "--yes", name_server=brokers.rocketmq_addr)
    assert "NOT_RECORDED" in deleted.err or "not recorded" in deleted.err
    listed = await brokers.done("topics", name_server=brokers.rocketmq_addr)
    assert topic not in listed.out.split()


async def test_after_a_kill_of_the_broker_the_same_command_finishes_what_was_begun(
    brokers: Brokers, clients: ExitStack
) -> None:
    topic = "Killed"
    await brokers.done("topic", "create", topic, "--queues", "4", "--yes")
    consumer = brokers.mq.consumer(topic, group="restarted")
    clients.callback(consumer.end)
    producer = brokers.mq.producer(topic, 40, millis=10)
    clients.callback(producer.end)
    await read_until(lambda: brokers.committed("restarted"), lambda count: count == 40, seconds=60)
    shrink = ("topic", "alter", topic, "--queues", "1", "--yes")
    await brokers.done(*shrink, "--no-wait")
    brokers.broker.end()
    brokers.broker.start_again()

    async def registered() -> bool:
        return (await brokers.ctl("topic", "status", topic)).code == 0

    await read_until(registered, seconds=60)
    assert (await brokers.status(topic))["settings"] == {"readQueueNums": 4, "writeQueueNums": 1, "perm": "rw"}
    # The broker lost what was committed in its last 5 s, and its clients connect again within 30 s: before, the command
    # is refused because the group has no member.
    await read_until(lambda: brokers.ctl(*shrink, "--quiet", "1s"), lambda ended: ended.code == 0, seconds=90)
    await brokers.reads(topic, (1, 1, 6))
