"""A RocketMQ broker for tests that coordinates groups: members by connection, queue locks and offsets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import ONE_WAY_FLAG, Command
from pointsman_client.core.route import BrokerData, BrokerReplica, BrokerState, QueueData, Revision, TopicRoute
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.client.memory_group import CLUSTER, PERM_READ_WRITE

VERSION_WITHOUT_HONEST_OFFSETS = 407


class GroupBroker(FakeBroker):
    """``extra_ids`` are listed besides the members that send heartbeats, ``hidden_ids`` are not listed."""

    def __init__(self, *, version: int = 479) -> None:
        super().__init__(version=version, grid_seconds=0.2)
        self.heartbeats: list[dict[str, Any]] = []
        self.extra_ids: list[str] = []
        self.hidden_ids: set[str] = set()
        self.subscriptions: dict[str, Any] | None = None
        """``subscriptionTable`` of the group after the heartbeat of another member; None: NO_PERMISSION."""
        self.shown: dict[str, str] = {}
        """Further fields of that response, such as ``messageModel``."""
        self.locks: dict[tuple[str, int], str] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.running: Counter[int] = Counter()
        self.most_running = 0
        """Largest number of requests for offsets that were unanswered at the same time."""
        self._members: dict[asyncio.StreamWriter, dict[str, str]] = {}
        self._peer: asyncio.StreamWriter | None = None
        self.handlers |= {
            Request.HEART_BEAT: self._heartbeat,
            Request.UNREGISTER_CLIENT: self._unregister,
            Request.GET_CONSUMER_LIST_BY_GROUP: self._list,
            Request.GET_CONSUMER_CONNECTION_LIST: self._connections,
            Request.LOCK_BATCH_MQ: self._lock,
            Request.UNLOCK_BATCH_MQ: self._unlock,
            Request.QUERY_CONSUMER_OFFSET: self._query_offset,
            Request.UPDATE_CONSUMER_OFFSET: self._update_offset,
        }

    def client_ids(self, group: str = "billing") -> list[str]:
        """Return the members of a group, unsorted as a broker has them."""
        return [groups[group] for groups in self._members.values() if group in groups]

    def notify(self, group: str = "billing") -> None:
        """Report to all clients that the members changed (NOTIFY_CONSUMER_IDS_CHANGED)."""
        self.push(Command(code=Request.NOTIFY_CONSUMER_IDS_CHANGED, flag=ONE_WAY_FLAG, ext={"consumerGroup": group}))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super()._serve(reader, writer)
        finally:
            if self._members.pop(writer, None):
                self.notify()

    async def _answer(self, command: Command, body: bytes, writer: asyncio.StreamWriter) -> None:
        # The handler is called before anything else runs.
        self._peer = writer
        await super()._answer(command, body, writer)

    def _heartbeat(self, _: Command, body: bytes) -> Answer:
        assert self._peer is not None
        heartbeat = json.loads(body)
        self.heartbeats.append(heartbeat)
        known = self._members.get(self._peer)
        groups = {each["groupName"]: heartbeat["clientID"] for each in heartbeat["consumerDataSet"]}
        self._members[self._peer] = (known or {}) | groups
        if known is None:
            self.notify()
        return Answer()

    def _unregister(self, command: Command, _: bytes) -> Answer:
        assert self._peer is not None
        self._members.get(self._peer, {}).pop(command.ext["consumerGroup"], None)
        self.notify()
        return Answer()

    def _list(self, command: Command, _: bytes) -> Answer:
        listed = [each for each in self.client_ids(command.ext["consumerGroup"]) if each not in self.hidden_ids]
        if not listed + self.extra_ids:
            return Answer(Code.SYSTEM_ERROR, remark="no consumer for this group")
        return Answer(body=json.dumps({"consumerIdList": listed + self.extra_ids}).encode())

    def _connections(self, _: Command, __: bytes) -> Answer:
        if self.subscriptions is None:
            return Answer(Code.NO_PERMISSION, remark="denied")
        return Answer(body=json.dumps({"subscriptionTable": self.subscriptions, **self.shown}).encode())

    def _lock(self, _: Command, body: bytes) -> Answer:
        asked = json.loads(body)
        granted = [
            queue
            for queue in asked["mqSet"]
            if self.locks.setdefault((queue["topic"], queue["queueId"]), asked["clientId"]) == asked["clientId"]
        ]
        return Answer(body=json.dumps({"lockOKMQSet": granted}).encode())

    def _unlock(self, _: Command, body: bytes) -> Answer:
        asked = json.loads(body)
        for queue in asked["mqSet"]:
            if self.locks.get((queue["topic"], queue["queueId"])) == asked["clientId"]:
                del self.locks[queue["topic"], queue["queueId"]]
        return Answer()

    async def _query_offset(self, command: Command, _: bytes) -> Answer:
        self.running[command.code] += 1
        self.most_running = max(self.most_running, self.running[command.code])
        await asyncio.sleep(0)
        self.running[command.code] -= 1
        key = command.ext["topic"], int(command.ext["queueId"])
        if key in self.offsets:
            return self._offset(self.offsets[key])
        if self.version <= VERSION_WITHOUT_HONEST_OFFSETS and not self._log(command).first:
            return self._offset(0)
        return Answer(Code.QUERY_NOT_FOUND, remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")

    def _update_offset(self, command: Command, _: bytes) -> Answer:
        self.offsets[command.ext["topic"], int(command.ext["queueId"])] = int(command.ext["commitOffset"])
        return Answer()


def routed(topic: str, brokers: Mapping[str, str], *, queues: int = 2) -> TopicRoute:
    """A route with this number of queues on each broker; ``brokers``: the addresses of the masters by name."""
    return TopicRoute(
        topic,
        Revision(1, 1, b""),
        tuple(QueueData(CLUSTER, name, queues, queues, PERM_READ_WRITE, 0) for name in brokers),
        tuple(
            BrokerData(CLUSTER, name, (BrokerReplica(0, addr, "", "", BrokerState.UP),), zone="", acting_master=False)
            for name, addr in brokers.items()
        ),
    )
