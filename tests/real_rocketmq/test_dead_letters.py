"""``pointsmanctl dlq`` on real brokers, with dead letters of consumers of this client and ``mqadmin`` beside it."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, free_port, got
from pointsman_client import ConsumeFrom, ConsumeResult, Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_ctl.servers.letter_replay import MAX_BATCH, REPLAY_OF
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.process import ended as process_ended
from tests.kit.ctl.process import started
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC = "Bills"
GROUPS = ("billing", "other", "audit", "java", "ordered", "moved", "mixed", "closed", "fleet", "many")


class Brokers:
    """One broker at one name server."""

    def __init__(self, addr: str, remoting_addr: str, mq: RocketMQ) -> None:
        self.addr = addr
        self.remoting_addr = f"rocketmq://{remoting_addr}"
        self.mq = mq

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.addr, "--timeout", "20", *arguments)

    async def json(self, *arguments: str, code: int = 0) -> Any:
        ended = await self.ctl("-o", "json", *arguments)
        assert ended.code == code, ended.err
        return json.loads(ended.out)

    async def send(self, *bodies: bytes, **fields: Any) -> None:
        async with Producer(self.addr, transport=RocketmqTransport) as producer:
            for body in bodies:
                await producer.send(Message(TOPIC, body, **fields))

    def consumer(self, group: str, listener: Any, **options: Any) -> PushConsumer:
        return PushConsumer(
            self.addr,
            group=group,
            subscriptions={TOPIC: "*"},
            listener=listener,
            transport=RocketmqTransport,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **options,
        )

    async def letters(self, group: str) -> list[dict[str, Any]]:
        return list((await self.json("dlq", "show", group, "--limit", "1000"))["deadLetters"])

    async def until_dead(self, group: str, count: int) -> list[dict[str, Any]]:
        return await read_until(lambda: self.letters(group), lambda found: len(found) == count)


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("dlq")
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        pointsman = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(pointsman.stop)
        mq = RocketMQ(jars.of(request.param), folder / request.param, pointsman.addr)
        mq.topics_on_disk("a", 0, [TOPIC])
        table = {name: {"groupName": name} for name in GROUPS}
        groups = folder / request.param / "a-0" / "store" / "config" / "subscriptionGroup.json"
        groups.write_text(json.dumps({"subscriptionGroupTable": table}))
        # The strictest brokers: the record of replays is created nevertheless.
        stack.callback(mq.broker("a", autoCreateTopicEnable="false", autoCreateSubscriptionGroup="false").end)
        until(lambda: pointsman.addrs("a") and pointsman.perms(TOPIC), what="the broker")
        yield Brokers(addr, pointsman.addr, mq)


async def test_dead_letters_of_a_broker_are_replayed_to_the_group_alone(brokers: Brokers) -> None:
    others: list[bytes] = []
    fixed: list[ReceivedMessage] = []
    await brokers.send(*(b"%d" % each for each in range(40)), tags="paid", keys=("4711",), properties={"shop": "7"})
    async with (
        brokers.consumer("other", lambda message: others.append(message.body)),
        brokers.consumer("billing", lambda _: ConsumeResult.DEAD_LETTER),
    ):
        letters = await brokers.until_dead("billing", 40)
        await eventually(lambda: len(others) >= 40)
    first = letters[0]
    assert (first["topic"], first["tag"], first["keys"], first["properties"]) == (
        TOPIC,
        "paid",
        ["4711"],
        {"shop": "7"},
    )
    assert (first["broker"], first["reason"]) == ("C/a", "")
    printed = await asyncio.to_thread(brokers.mq.admin, "topicStatus", "-t", "%DLQ%billing")
    print(printed)

    async with brokers.consumer("billing", fixed.append):
        done = await brokers.json("dlq", "replay", "billing", "--yes")
        assert [each["sent"] for each in done["servers"]] == [40]
        await eventually(lambda: len(fixed) >= 40)
    assert Counter(each.body for each in fixed) == Counter(b"%d" % each for each in range(40))
    assert {each.topic for each in fixed} == {TOPIC}
    assert {each.tags for each in fixed} == {"paid"}
    assert {each.message_id for each in fixed} == {each["messageId"] for each in letters}
    assert {each.properties[REPLAY_OF] for each in fixed} == {f"C/a/%DLQ%billing/0@{each}" for each in range(40)}
    assert len(others) == 40
    assert [each["isReplayed"] for each in await brokers.letters("billing")] == [True] * 40
    assert (await brokers.json("dlq", "replay", "billing", "--yes"))["servers"] == []
    (group,) = [each for each in (await brokers.json("dlq", "list"))["groups"] if each["group"] == "billing"]
    assert (group["stored"], group["notReplayed"]) == (40, 0)


async def test_a_dead_letter_topic_without_read_permission_gets_it_by_the_named_command(brokers: Brokers) -> None:
    await brokers.send(b"8001", tags="closed")

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.DEAD_LETTER if message.tags == "closed" else None

    async with brokers.consumer("closed", listener):
        await brokers.until_dead("closed", 1)
    broker = (await brokers.json("dlq", "list"))["groups"][0]["brokers"][0]["addr"]
    perm = ("updateTopicPerm", "-b", broker, "-t", "%DLQ%closed", "-p")
    await asyncio.to_thread(brokers.mq.admin, *perm, "2")
    refused = await read_until(lambda: brokers.ctl("dlq", "show", "closed"), lambda ended: ended.code)
    (command,) = re.findall(r"give it with mqadmin (updateTopicPerm -b \S+ -t \S+ -p 6)", refused.err)
    await asyncio.to_thread(brokers.mq.admin, *command.split())
    await read_until(lambda: brokers.ctl("dlq", "show", "closed"), lambda ended: not ended.code)


async def test_replayed_to_the_topic_dead_letters_reach_a_java_consumer(brokers: Brokers) -> None:
    await brokers.send(b"9001", b"9002")
    async with brokers.consumer(
        "audit", lambda message: ConsumeResult.DEAD_LETTER if message.body.startswith(b"900") else None
    ):
        await brokers.until_dead("audit", 2)
    await brokers.json("dlq", "replay", "audit", "--to", "topic", "--select", "topic=Bills", "--yes")
    consumer = brokers.mq.consumer(TOPIC, group="java")
    try:
        await eventually(lambda: got(consumer).count("9001") == 2 and got(consumer).count("9002") == 2)
    finally:
        await asyncio.to_thread(consumer.end)


async def test_a_java_member_of_the_group_gets_what_is_replayed_to_it(brokers: Brokers) -> None:
    await brokers.send(b"7001", b"7002", tags="mixed")

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.DEAD_LETTER if message.tags == "mixed" else None

    async with brokers.consumer("mixed", listener):
        await brokers.until_dead("mixed", 2)
    consumer = brokers.mq.consumer(TOPIC, group="mixed")
    try:
        await read_until(lambda: brokers.ctl("group", "mixed"), lambda ended: "JAVA" in ended.out)
        done = await brokers.json("dlq", "replay", "mixed", "--yes")
        assert (done["plan"]["membersOnline"], done["servers"][0]["sent"]) == (1, 2)
        await eventually(lambda: got(consumer).count("7001") == got(consumer).count("7002") == 1)
    finally:
        await asyncio.to_thread(consumer.end)
    assert [each["isReplayed"] for each in await brokers.letters("mixed")] == [True, True]


async def test_a_killed_replay_is_finished_while_consumers_run_and_none_is_lost(brokers: Brokers) -> None:
    count = 600
    is_repaired = False
    replayed: list[str] = []

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        if message.tags != "many":
            return None
        if not is_repaired:
            return ConsumeResult.DEAD_LETTER
        replayed.append(message.properties[REPLAY_OF])
        return None

    await brokers.send(*(b"5%03d" % each for each in range(count)), tags="many")
    async with brokers.consumer("many", listener):
        await brokers.until_dead("many", count)
        is_repaired = True
        replay = await started("--namesrv", brokers.addr, "dlq", "replay", "many", "--yes", "--rate", "200")
        await eventually(lambda: len(replayed) > 100)
        replay.kill()
        assert (await process_ended(replay)).code == -9
        done = await brokers.json("dlq", "replay", "many", "--yes")
        assert 0 < done["servers"][0]["sent"] < count
        await eventually(lambda: len(set(replayed)) == count)
    assert set(replayed) == {f"C/a/%DLQ%many/0@{offset}" for offset in range(count)}
    assert len(replayed) - count <= MAX_BATCH


async def test_name_servers_of_rocketmq_have_the_routes_but_no_record(brokers: Brokers) -> None:
    await brokers.send(b"6001", tags="old")

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        return ConsumeResult.DEAD_LETTER if message.tags == "old" else None

    async with brokers.consumer("fleet", listener):
        await brokers.until_dead("fleet", 1)
    for command in (["list"], ["show", "fleet"]):
        grpc, remoting = [
            await ctl("--namesrv", each, "dlq", *command) for each in (brokers.addr, brokers.remoting_addr)
        ]
        assert (grpc.code, grpc.out) == (remoting.code, remoting.out) == (0, grpc.out)
    done = await ctl("--namesrv", brokers.remoting_addr, "-o", "json", "dlq", "replay", "fleet", "--yes")
    assert (done.code, "NOT_RECORDED" in done.err) == (0, True)
    assert (done.document["servers"][0]["sent"], done.document["recorded"]) == (1, [])
    assert [each["isReplayed"] for each in await brokers.letters("fleet")] == [True]


async def test_an_ordered_group_needs_the_topic(brokers: Brokers) -> None:
    seen: list[bytes] = []

    def listener(message: ReceivedMessage) -> ConsumeResult | None:
        seen.append(message.body)
        return ConsumeResult.DEAD_LETTER if message.body == b"bad" and REPLAY_OF not in message.properties else None

    await brokers.send(b"bad")
    async with brokers.consumer("ordered", listener, ordered=True):
        await brokers.until_dead("ordered", 1)
        refused = await brokers.ctl("dlq", "replay", "ordered", "--yes")
        assert refused.code == 1
        assert "no member of group ordered reads its retry topic" in refused.err
        await brokers.json("dlq", "replay", "ordered", "--to", "topic", "--yes")
        await eventually(lambda: seen.count(b"bad") == 2)


async def test_exported_dead_letters_are_imported_as_they_were(brokers: Brokers, tmp_path: Path) -> None:
    await brokers.send(b"\x00\xff", b"text", tags="t", keys=("k",))
    async with brokers.consumer("moved", lambda message: ConsumeResult.DEAD_LETTER if message.tags == "t" else None):
        await brokers.until_dead("moved", 2)
    file = tmp_path / "moved.jsonl"
    assert (await brokers.json("dlq", "export", "moved", str(file)))["exported"] == 2
    assert (await brokers.json("dlq", "import", str(file), "--yes"))["servers"][0]["sent"] == 2
    at = {"broker", "queueOffset"}
    found = [{key: value for key, value in each.items() if key not in at} for each in await brokers.letters("moved")]
    assert found[:2] == found[2:]
