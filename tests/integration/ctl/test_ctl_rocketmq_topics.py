"""``pointsmanctl topic`` where brokers are RocketMQ's, of 5.x and 4.9, through either kind of name server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_ctl.output.error_report import EXIT_FAILED
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server.in_process import running_name_server

GRPC, REMOTING = "grpc", "remoting"
through_both = pytest.mark.parametrize("kind", [GRPC, REMOTING])
PHANTOM_SINCE_5 = 479


def entry(queue: int, facts: dict[str, int], topic: str) -> str:
    """An entry of a map whose keys are objects, as fastjson writes it."""
    return f'{{"brokerName":"a","queueId":{queue},"topic":"{topic}"}}:{json.dumps(facts)}'


class TopicBroker(FakeBroker):
    """A broker with topics, and a group that reads ``orders``."""

    def __init__(self, *, version: int = 479) -> None:
        super().__init__(version=version)
        # A first registration with a single topic is refused.
        self.topics: dict[str, dict[str, Any]] = {
            "orders": topic_config("orders", readQueueNums=4, writeQueueNums=4),
            "other": topic_config("other"),
        }
        self.ends: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.members: list[str] = ["x@1"]
        self.handlers |= {
            Request.UPDATE_AND_CREATE_TOPIC: self._update,
            Request.DELETE_TOPIC_IN_BROKER: self._delete,
            Request.GET_TOPIC_CONFIG: self._config,
            Request.GET_ALL_TOPIC_CONFIG: lambda _, __: Answer(
                body=json.dumps({"topicConfigTable": self.topics}).encode()
            ),
            Request.GET_TOPIC_STATS_INFO: self._stats,
            Request.GET_MAX_OFFSET: lambda command, _: self._offset(self.ends.get(int(command.ext["queueId"]), 0)),
            Request.GET_MIN_OFFSET: lambda _, __: self._offset(0),
            # 5.x lists the topic's own name in place of a group with members.
            Request.QUERY_TOPIC_CONSUME_BY_WHO: lambda command, _: Answer(
                body=json.dumps(
                    {"groupList": ["billing"] + [command.ext["topic"]] * (self.version >= PHANTOM_SINCE_5)}
                ).encode()
            ),
            Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda _, __: Answer(
                body=json.dumps({"subscriptionGroupTable": {"billing": {"groupName": "billing"}}}).encode()
            ),
            Request.GET_CONSUMER_CONNECTION_LIST: self._connections,
            Request.GET_CONSUME_STATS: self._progress,
        }

    def _update(self, command: Command, _: bytes) -> Answer:
        ext = command.ext
        self.topics[ext["topic"]] = topic_config(
            ext["topic"],
            readQueueNums=int(ext["readQueueNums"]),
            writeQueueNums=int(ext["writeQueueNums"]),
            perm=int(ext["perm"]),
            order=ext["order"] == "true",
        )
        return Answer()

    def _delete(self, command: Command, _: bytes) -> Answer:
        self.topics.pop(command.ext["topic"], None)
        return Answer()

    def _config(self, command: Command, _: bytes) -> Answer:
        if self.version < PHANTOM_SINCE_5:
            return Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark="request type 351 not supported")
        found = self.topics.get(command.ext["topic"])
        if found is None:
            return Answer(Code.TOPIC_NOT_EXIST, remark="No topic in this broker")
        return Answer(body=json.dumps(found).encode())

    def _stats(self, command: Command, _: bytes) -> Answer:
        topic = self.topics[command.ext["topic"]]
        # 4.9 lists writable queues alone.
        count = topic["writeQueueNums"]
        if self.version >= PHANTOM_SINCE_5:
            count = max(count, topic["readQueueNums"])
        rows = [
            entry(queue, {"lastUpdateTimestamp": 1, "maxOffset": self.ends.get(queue, 0), "minOffset": 0}, "orders")
            for queue in range(count)
        ]
        return Answer(body=f'{{"offsetTable":{{{",".join(rows)}}}}}'.encode())

    def _connections(self, command: Command, _: bytes) -> Answer:
        if command.ext["consumerGroup"] != "billing" or not self.members:
            return Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")
        body = {
            "connectionSet": [
                {"clientAddr": "10.0.0.9:1", "clientId": each, "language": "JAVA", "version": 479}
                for each in self.members
            ],
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {"orders": {"subString": "*"}},
        }
        return Answer(body=json.dumps(body).encode())

    def _progress(self, command: Command, _: bytes) -> Answer:
        assert command.ext["consumerGroup"] == "billing", "a group that does not exist was asked for"
        progress = {
            queue: {"brokerOffset": self.ends.get(queue, 0), "consumerOffset": self.committed.get(queue, 0)}
            for queue in range(self.topics["orders"]["readQueueNums"])
        }
        rows = [entry(queue, facts, "orders") for queue, facts in progress.items()]
        return Answer(body=f'{{"offsetTable":{{{",".join(rows)}}}}}'.encode())

    def queues(self, topic: str = "orders") -> tuple[int, int, int]:
        """Read and write queues and permission."""
        found = self.topics[topic]
        return found["readQueueNums"], found["writeQueueNums"], found["perm"]

    def changes(self) -> list[Command]:
        """Requests that changed a topic."""
        codes = {Request.UPDATE_AND_CREATE_TOPIC, Request.DELETE_TOPIC_IN_BROKER}
        return [each for each in self.requests if each.code in codes]


@dataclass
class Fleet:
    """A broker of 5.x with a slave, and one of 4.9."""

    name_server: NameServerApp
    stack: AsyncExitStack
    new: TopicBroker = field(default_factory=TopicBroker)
    slave: TopicBroker = field(default_factory=TopicBroker)
    old: TopicBroker = field(default_factory=lambda: TopicBroker(version=407))

    async def register(self, name: str, broker: TopicBroker, broker_id: int = 0) -> None:
        await self.stack.enter_async_context(broker)
        peer = await self.stack.enter_async_context(remoting_peer(self.name_server.remoting_addr))
        peer.send(register(broker_ext(name, broker_id, broker.addr, clusterName="c1"), register_body(broker.topics)))
        assert (await peer.answer()).code == 0

    async def ctl(self, *arguments: str, kind: str = GRPC) -> Ended:
        addr = self.name_server.addr if kind == GRPC else f"rocketmq://{self.name_server.remoting_addr}"
        return await ctl("--namesrv", addr, *arguments)

    async def done(self, *arguments: str, kind: str = GRPC) -> Ended:
        ended = await self.ctl(*arguments, kind=kind)
        assert ended.code == 0, ended
        return ended


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")))
        running = Fleet(server, stack)
        await running.register("a", running.new)
        await running.register("a", running.slave, 1)
        await running.register("b", running.old)
        yield running


@through_both
async def test_a_topic_grows_at_every_master_and_keeps_its_other_settings(fleet: Fleet, kind: str) -> None:
    fleet.new.topics["orders"]["order"] = True
    await fleet.done("topic", "alter", "orders", "--queues", "6", "--yes", kind=kind)
    assert (fleet.new.queues(), fleet.old.queues()) == ((6, 6, 6), (6, 6, 6))
    assert fleet.new.topics["orders"]["order"] is True
    assert fleet.slave.changes() == []
    again = await fleet.done("topic", "alter", "orders", "--queues", "6", "--yes", kind=kind)
    assert "6 queues, rw (already)" in again.out
    assert len(fleet.new.changes()) == len(fleet.old.changes()) == 1


@through_both
async def test_a_topic_is_created_at_one_broker_and_deleted_at_all(fleet: Fleet, kind: str) -> None:
    await fleet.done("topic", "create", "bills", "--queues", "3", "--perm", "r", "--broker", "b", "--yes", kind=kind)
    assert fleet.old.queues("bills") == (3, 3, 4)
    assert "bills" not in fleet.new.topics
    await fleet.done("topic", "delete", "bills", "--yes", kind=kind)
    assert "bills" not in fleet.old.topics


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_topic_shrinks_after_its_group_has_read_what_goes(fleet: Fleet, name: str) -> None:
    """4.9 does not list queues that are no longer writable."""
    broker = fleet.new if name == "a" else fleet.old
    broker.ends, broker.committed = {3: 5}, {3: 4}
    shrink = ("topic", "alter", "orders", "--queues", "2", "--broker", name, "--yes", "--quiet", "1s")
    await fleet.done(*shrink, "--no-wait")
    assert broker.queues() == (4, 2, 6)
    late = await fleet.ctl(*shrink, "--wait", "1s")
    assert "waiting for billing at c1/" in late.err
    assert broker.queues() == (4, 2, 6)
    broker.committed = {3: 5}
    await fleet.done(*shrink)
    assert broker.queues() == (2, 2, 6)


async def test_a_group_without_members_needs_force(fleet: Fleet) -> None:
    fleet.new.ends, fleet.new.members = {3: 5}, []
    shrink = ("topic", "alter", "orders", "--queues", "2", "--broker", "a", "--yes", "--quiet", "1s")
    refused = await fleet.ctl(*shrink)
    assert (refused.code, "billing at c1/a: has not committed 5 messages, and has no member" in refused.err) == (
        1,
        True,
    )
    assert fleet.new.changes() == []
    await fleet.done(*shrink, "--force")
    assert fleet.new.queues() == (2, 2, 6)


async def test_messages_go_with_a_deleted_topic_so_that_must_be_said(fleet: Fleet) -> None:
    fleet.new.ends = {0: 7}
    refused = await fleet.ctl("topic", "delete", "orders", "--yes")
    assert (refused.code, "RocketMQ brokers delete the messages with the topic: 7 messages" in refused.err) == (1, True)
    assert fleet.new.changes() == fleet.old.changes() == []
    await fleet.done("topic", "delete", "orders", "--delete-messages", "--yes")
    assert (set(fleet.new.topics), set(fleet.old.topics)) == ({"other"}, {"other"})
    assert "orders" not in (await fleet.done("topics")).out.split()


async def test_a_static_topic_is_refused_with_what_to_use(fleet: Fleet) -> None:
    fleet.new.topics["orders"]["mappingDetail"] = {"topic": "orders", "totalQueues": 8}
    refused = await fleet.ctl("topic", "alter", "orders", "--queues", "8", "--yes")
    assert (refused.code, "use mqadmin updateStaticTopic" in refused.err) == (EXIT_FAILED, True)
    assert fleet.new.changes() == fleet.old.changes() == []


async def test_an_account_that_may_not_is_named_and_the_other_broker_is_changed(fleet: Fleet) -> None:
    fleet.old.answers[Request.UPDATE_AND_CREATE_TOPIC] = Answer(Code.NO_PERMISSION, remark="denied")
    ended = await fleet.ctl("topic", "alter", "orders", "--queues", "6", "--yes")
    assert (ended.code, "UPDATE_AND_CREATE_TOPIC (17): NO_PERMISSION 16: denied" in ended.err) == (EXIT_FAILED, True)
    assert (fleet.new.queues(), fleet.old.queues()) == ((6, 6, 6), (4, 4, 6))


async def test_a_body_that_cannot_be_read_is_a_failure_of_that_broker(fleet: Fleet) -> None:
    fleet.new.answers[Request.GET_TOPIC_CONFIG] = Answer(body=b'{"readQueueNums": -1}')
    ended = await fleet.ctl("topic", "status", "orders")
    assert (ended.code, "GET_TOPIC_CONFIG (351) cannot be read: readQueueNums" in ended.err) == (EXIT_FAILED, True)
    assert "c1/b: 4 queues, rw" in ended.out
