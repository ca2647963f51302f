"""Messages of real brokers, 5.5.0, 5.3.3 and 4.9.7, as ``pointsmanctl`` reads, finds and sends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, free_port
from pointsman_client import Message, MessageQueue
from pointsman_ctl.commands.message_probe_command import PROBE_TOPIC
from pointsman_ctl.options.invocation import Invocation
from pointsman_ctl.servers.stored_messages import BrokerKind, StoredMessages, outgoing
from tests.kit.ctl.command import Ended, ctl
from tests.kit.waiting import read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC, JAVA, SENT = "Bills", "Java", "Sent"
SECONDS = 20.0


@dataclass
class RealBroker:
    """One broker, at a name server of Pointsman."""

    grpc_addr: str
    remoting_addr: str
    mq: RocketMQ
    clients: ExitStack

    def client(self, client: Running) -> Running:
        """Have a client ended with the broker."""
        self.clients.callback(client.end)
        return client

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.grpc_addr, "--timeout", str(SECONDS), *arguments)


@pytest.fixture(scope="module", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealBroker]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("messages")
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        pointsman = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(pointsman.stop)
        mq = RocketMQ(lib, folder / lib.name, pointsman.addr)
        mq.topics_on_disk("a", 0, [TOPIC, JAVA, SENT, PROBE_TOPIC])
        # On a loaded machine a broker else refuses messages that waited for 200 ms.
        stack.callback(mq.broker("a", waitTimeMillsInSendQueue="30000").end)
        until(lambda: pointsman.addrs("a") and pointsman.perms(TOPIC), what="the broker")
        yield RealBroker(addr, pointsman.addr, mq, stack)


@pytest.fixture(params=["grpc", "remoting"])
async def messages(request: pytest.FixtureRequest, broker: RealBroker) -> AsyncIterator[StoredMessages]:
    addr = broker.grpc_addr if request.param == "grpc" else f"rocketmq://{broker.remoting_addr}"
    async with Invocation((addr,), "table", SECONDS).stored_messages() as found:
        yield found


async def test_messages_are_read_by_offset_and_time_without_a_group(
    messages: StoredMessages, broker: RealBroker
) -> None:
    held = await messages.queues(TOPIC)
    assert [(each.queue, each.kind) for each in held] == [
        (MessageQueue(TOPIC, "C", "a", queue_id), BrokerKind.ROCKETMQ) for queue_id in range(4)
    ]
    queue = held[2]
    (begin, end), middle = await messages.bounds(queue), datetime.now(UTC)
    sent = [outgoing(Message(TOPIC, b"%d" % number, "paid", (f"key-{number}",))) for number in range(100)]
    for each in sent[:50]:
        await messages.send(queue, [each])
    await asyncio.sleep(0.02)  # brokers note the time in milliseconds
    middle = datetime.now(UTC)
    await messages.send(queue, sent[50:])
    await read_until(lambda: messages.bounds(queue), lambda found: found == (begin, end + 100))

    found = [message async for message in messages.read(queue, end, end + 100)]
    assert [(each.body, each.keys, each.message_id) for each in found] == [
        (each.message.body, each.message.keys, each.message_id) for each in sent
    ]
    assert await messages.offset_at(queue, middle) == end + 50
    assert "%s@" not in await asyncio.to_thread(broker.mq.admin, "consumerProgress")
    assert not any(
        TOPIC in line for line in (await asyncio.to_thread(broker.mq.admin, "consumerProgress")).splitlines()
    )


async def test_a_large_message_is_read_whole(messages: StoredMessages) -> None:
    queue = (await messages.queues(TOPIC))[1]
    _, end = await messages.bounds(queue)
    body = bytes(range(256)) * (15 * 1024)
    await messages.send(queue, [outgoing(Message(TOPIC, body))])
    await read_until(lambda: messages.bounds(queue), lambda found: found[1] == end + 1)
    assert [message.body async for message in messages.read(queue, end, end + 1)] == [body]


async def peeked(broker: RealBroker, *arguments: str) -> list[dict[str, Any]]:
    ended = await broker.ctl("-o", "json", "messages", *arguments)
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = ended.document["messages"]
    return found


async def test_messages_of_a_java_producer_are_found_by_key_and_by_both_ids(broker: RealBroker) -> None:
    """The program sends one with tag, key and property, a compressed one, and a batch of three."""
    producer = broker.client(broker.mq.kinds(JAVA))
    await asyncio.to_thread(until, lambda: not producer.is_alive, seconds=60, what="the Java producer")
    found = await read_until(lambda: peeked(broker, "peek", JAVA), lambda messages: len(messages) == 5)
    assert [each["body"][:10] for each in found] == ["tagged", "x" * 10, "b0", "b1", "b2"]
    for each in found:
        by_place = await peeked(broker, "find", JAVA, "--id", each["offsetMessageId"])
        assert [one["queueOffset"] for one in by_place] == [each["queueOffset"]]
        listed = await asyncio.to_thread(broker.mq.admin, "queryMsgByUniqueKey", "-t", JAVA, "-i", each["messageId"])
        by_id = await broker.ctl("-o", "json", "messages", "find", JAVA, "--id", each["messageId"])
        if "Queue Offset" not in listed:
            # 5.3.3 has only the id of a batch in its index.
            assert (by_id.code, each["body"] in {"b0", "b1", "b2"}) == (1, True)
            continue
        assert [one["queueOffset"] for one in by_id.document["messages"]] == [each["queueOffset"]]
        assert re.search(rf"Queue ID\W+{each['queue']['queueId']}\W", listed), listed
        assert re.search(rf"Queue Offset\W+{each['queueOffset']}\W", listed), listed
    for key, body in (("4712", "tagged"), ("b1", "b1")):
        assert [each["body"] for each in await peeked(broker, "find", JAVA, "--key", key)] == [body]
    absent = await broker.ctl("messages", "find", JAVA, "--key", "absent")
    assert (absent.code, "no message of topic Java with key absent was found" in absent.err) == (1, True)


async def test_what_is_sent_reaches_a_java_consumer_and_its_group_is_named(broker: RealBroker) -> None:
    group = "java-billing"
    consumer = broker.client(broker.mq.consumer(SENT, group=group))
    dry = await read_until(
        lambda: broker.ctl("-o", "json", "messages", "send", SENT, "--body", "x", "--dry-run"),
        lambda ended: ended.code == 0 and group in ended.document["plan"]["groups"],
        seconds=60,
    )
    assert dry.document["plan"]["unknown"] == []
    refused = await broker.ctl("messages", "send", SENT, "--body", "by hand")
    assert (refused.code, f"received by {group}?" in refused.err) == (2, True)
    arguments = ("--body", "by hand", "--key", "4711", "--tag", "paid", "--property", "source=ops", "--count", "4")
    sent = await broker.ctl("-o", "json", "messages", "send", SENT, *arguments, "--yes")
    assert sent.code == 0, sent.err
    assert sorted(each["queue"]["queueId"] for each in sent.document["messages"]) == [0, 1, 2, 3]
    expected = "got by hand tags=paid keys=4711 source=ops size=7"
    await asyncio.to_thread(
        until, lambda: sum(expected in line for line in consumer.said()) == 4, seconds=60, what="the Java consumer"
    )


async def test_a_probe_goes_through_every_queue_and_leaves_no_group(broker: RealBroker) -> None:
    ended = await broker.ctl("-o", "json", "messages", "probe")
    assert ended.code == 0, ended.err
    assert [each["queue"]["queueId"] for each in ended.document["queues"]] == [0, 1, 2, 3]
    progress = await asyncio.to_thread(broker.mq.admin, "consumerProgress")
    assert "TOOLS_CONSUMER" not in progress
    assert PROBE_TOPIC not in progress


async def test_a_probe_topic_that_is_missing_is_created_with_the_command_that_the_error_names(
    broker: RealBroker,
) -> None:
    probe = ("messages", "probe", "--topic", "own-probe")
    missing = await broker.ctl(*probe)
    assert (missing.code, missing.out) == (1, "")
    named = re.search(r"create it with `pointsmanctl (.+)`", missing.err)
    assert named
    created = await broker.ctl(*named[1].split(), "--yes")
    assert created.code == 0, created.err
    probed = await read_until(lambda: broker.ctl(*probe), lambda ended: ended.code == 0)
    assert [line.split()[0] for line in probed.out.splitlines()[1:]] == ["C/a/0"]


async def test_through_a_rocketmq_name_server_messages_are_sent_found_and_probed(broker: RealBroker) -> None:
    async def run(*arguments: str) -> Any:
        addr = f"rocketmq://{broker.remoting_addr}"
        ended = await ctl("--namesrv", addr, "--timeout", str(SECONDS), "-o", "json", *arguments)
        assert ended.code == 0, ended.err
        return ended.document

    sent = await run(
        "messages", "send", TOPIC, "--body", "x", "--key", "by-remoting", "--sharding-key", "4711", "--yes"
    )
    assert sent["recorded"] == []
    (message,) = sent["messages"]
    found = await read_until(
        lambda: broker.ctl("-o", "json", "messages", "find", TOPIC, "--id", message["messageId"]),
        lambda ended: ended.code == 0,
    )
    assert [each["queue"] for each in found.document["messages"]] == [message["queue"]]
    assert (await run("messages", "find", TOPIC, "--key", "by-remoting"))["messages"] == found.document["messages"]
    listed = await asyncio.to_thread(broker.mq.admin, "queryMsgByKey", "-t", TOPIC, "-k", "by-remoting")
    assert message["messageId"] in listed
    assert len((await run("messages", "probe"))["queues"]) == 4
    assert [each["broker"] for each in (await run("producers", TOPIC))["brokers"]] == ["C/a"]


async def test_a_java_producer_is_listed_with_its_group(broker: RealBroker) -> None:
    producer = broker.client(broker.mq.producer(SENT, 1_000_000))
    await asyncio.to_thread(
        until, lambda: any(line.startswith("sent ") for line in producer.said()), seconds=60, what="a message"
    )
    # A client whose first heartbeat came before it knew the broker sends the next one 30 s later.
    listed = await read_until(
        lambda: broker.ctl("-o", "json", "producers", SENT),
        lambda ended: ended.code == 0 and ended.document["brokers"][0]["producers"],
        seconds=60,
    )
    (java,) = listed.document["brokers"][0]["producers"]
    assert java["client"].startswith("JAVA ")
    of_group = await broker.ctl("-o", "json", "producers", SENT, "--group", java["group"])
    (same,) = of_group.document["brokers"][0]["producers"]
    assert (same["clientId"], same["addr"]) == (java["clientId"], java["addr"])
    absent = await broker.ctl("producers", SENT, "--group", "absent")
    assert (absent.code, absent.out) == (0, "no producer is connected\n")
