"""``pointsmanctl offsets reset`` at RocketMQ brokers, of the kind that resets offsets itself and of the older one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.peer import remoting_peer
from tests.kit.ctl.command import Ended, ctl
from tests.kit.name_server.in_process import running_name_server

MIN, MAX = 10, 100
RESET = ("offsets", "reset", "billing", "orders", "--yes", "--by", "ann")


def table(entries: dict[int, dict[str, int]]) -> bytes:
    written = ",".join(
        f'{{"brokerName":"a","queueId":{queue_id},"topic":"orders"}}:{json.dumps(facts)}'
        for queue_id, facts in entries.items()
    )
    return f'{{"offsetTable":{{{written}}}}}'.encode()


class OffsetBroker(FakeBroker):
    """Two queues of ``orders``; ``resets_itself``: as 5.2 and later."""

    def __init__(self, *, resets_itself: bool) -> None:
        super().__init__(version=479 if resets_itself else 407)
        self.committed = {0: 40, 1: 50}
        self.members: list[str] = []
        self.model = "CLUSTERING"
        self._resets_itself = resets_itself
        self.handlers |= {
            Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda *_: Answer(
                body=b'{"subscriptionGroupTable":{"billing":{"groupName":"billing"}}}'
            ),
            Request.GET_CONSUMER_CONNECTION_LIST: self._connections,
            Request.GET_CONSUME_STATS: lambda *_: Answer(
                body=table({each: {"brokerOffset": MAX, "consumerOffset": at} for each, at in self.committed.items()})
            ),
            Request.GET_TOPIC_STATS_INFO: lambda *_: Answer(
                body=table({each: {"minOffset": MIN, "maxOffset": MAX} for each in self.committed})
            ),
            Request.GET_BROKER_CONFIG: lambda *_: Answer(
                body=f"brokerName=a\nuseServerSideResetOffset={str(resets_itself).lower()}\n".encode()
            ),
            Request.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            Request.UPDATE_CONSUMER_OFFSET: self._commit,
        }

    def _connections(self, _: Command, __: bytes) -> Answer:
        if not self.members:
            return Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")
        body = {
            "connectionSet": [
                {"clientAddr": "10.0.0.9:1", "clientId": each, "language": "JAVA", "version": 479}
                for each in self.members
            ],
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": self.model,
            "subscriptionTable": {"orders": {"subString": "*"}},
        }
        return Answer(body=json.dumps(body).encode())

    def _reset(self, command: Command, _: bytes) -> Answer:
        if self._resets_itself:
            self.committed[int(command.ext["queueId"])] = int(command.ext["offset"])
        else:
            millis = int(command.ext["timestamp"])
            self.committed = dict.fromkeys(self.committed, MAX if millis == -1 else MIN)
        return Answer(body=b'{"offsetTable":{}}')

    def _commit(self, command: Command, _: bytes) -> Answer:
        self.committed[int(command.ext["queueId"])] = int(command.ext["commitOffset"])
        return Answer()

    def changes(self) -> list[int]:
        """Codes of the requests that changed something."""
        codes = {Request.INVOKE_BROKER_TO_RESET_OFFSET, Request.UPDATE_CONSUMER_OFFSET}
        return [code for code in self.codes() if code in codes]


@dataclass
class Fleet:
    """The broker, registered over RocketMQ's protocol."""

    name_server: NameServerApp
    broker: OffsetBroker

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.name_server.addr, *arguments)


@pytest.fixture(params=[True, False], ids=["newer", "older"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        remoting = RemotingConfig(listen="127.0.0.1:0")
        server = await stack.enter_async_context(running_name_server(remoting=remoting, history=tmp_path))
        broker = await stack.enter_async_context(OffsetBroker(resets_itself=request.param))
        peer = await stack.enter_async_context(remoting_peer(server.remoting_addr))
        topics = register_body({name: topic_config(name) for name in ("a", "orders")})
        peer.send(register(broker_ext("a", 0, broker.addr, clusterName="c1"), topics))
        assert (await peer.answer()).code == 0
        yield Fleet(server, broker)


async def test_offsets_of_a_stopped_group_are_set_in_any_queue(fleet: Fleet) -> None:
    ended = await fleet.ctl(*RESET, "--to", "a/0=44", "--to", "1=77")
    assert (ended.code, ended.err) == (0, "")
    assert "c1/a/0         40   44          +4   10  100" in ended.out
    assert fleet.broker.committed == {0: 44, 1: 77}
    newer = fleet.broker.version == 479
    code = Request.INVOKE_BROKER_TO_RESET_OFFSET if newer else Request.UPDATE_CONSUMER_OFFSET
    assert fleet.broker.changes() == [code, code]


@pytest.mark.parametrize(("to", "offset", "timestamp"), [("earliest", MIN, "0"), ("latest", MAX, "-1")])
async def test_an_older_broker_has_running_members_move_all_queues_to_one_time(
    fleet: Fleet, to: str, offset: int, timestamp: str
) -> None:
    fleet.broker.members = ["x@1"]
    ended = await fleet.ctl(*RESET, "--to", to)
    assert (ended.code, ended.err) == (0, "")
    assert fleet.broker.committed == {0: offset, 1: offset}
    sent = [each for each in fleet.broker.requests if each.code == Request.INVOKE_BROKER_TO_RESET_OFFSET]
    if fleet.broker.version == 407:
        assert [each.ext["timestamp"] for each in sent] == [timestamp]
        assert sent[0].ext["isForce"] == "true"
    else:
        assert sorted(each.ext["queueId"] for each in sent) == ["0", "1"]


async def test_what_an_older_broker_cannot_do_while_the_group_has_members_is_refused(fleet: Fleet) -> None:
    fleet.broker.members = ["x@1"]
    for to in (["-5"], ["latest", "--queue", "1"], ["a/1=7"]):
        fleet.broker.committed = {0: 40, 1: 50}
        ended = await fleet.ctl(*RESET, "--to", *to)
        if fleet.broker.version == 479:
            assert ended.code == 0
        else:
            assert (ended.code, fleet.broker.changes()) == (1, [])
            assert "stop the members of billing first" in ended.out


async def test_an_expected_offset_is_checked_before_the_change(fleet: Fleet) -> None:
    stats = fleet.broker.handlers[Request.GET_CONSUME_STATS]
    asked = 0

    def moving(command: Command, body: bytes) -> Any:
        nonlocal asked
        asked += 1
        if asked == 2:  # the first is that of the plan
            fleet.broker.committed[1] = 51
        return stats(command, body)

    fleet.broker.handlers[Request.GET_CONSUME_STATS] = moving
    ended = await fleet.ctl(*RESET, "--to", "latest", "--queue", "1", "--expect", "50")
    assert (ended.code, fleet.broker.changes()) == (1, [])
    assert "is at offset 51, not at the expected 50: nothing was reset" in ended.out + ended.err


async def test_a_group_that_the_broker_does_not_know_or_that_broadcasts_is_refused(fleet: Fleet) -> None:
    unknown = await fleet.ctl("offsets", "skip", "biling", "orders", "--yes")
    assert (unknown.code, "group biling has neither an offset" in unknown.err) == (1, True)
    fleet.broker.members, fleet.broker.model = ["x@1"], "BROADCASTING"
    broadcasting = await fleet.ctl(*RESET, "--to", "latest")
    assert (broadcasting.code, "group billing broadcasts" in broadcasting.err) == (1, True)
    assert fleet.broker.changes() == []


async def test_an_account_that_may_not_change_offsets_is_said(fleet: Fleet) -> None:
    denied = Answer(Code.NO_PERMISSION, remark="no permission")
    fleet.broker.answers |= {
        Request.INVOKE_BROKER_TO_RESET_OFFSET: denied,
        Request.UPDATE_CONSUMER_OFFSET: denied,
    }
    ended = await fleet.ctl(*RESET, "--to", "latest")
    assert ended.code == 1
    assert "NO_PERMISSION" in ended.out + ended.err


async def test_through_rocketmqs_protocol_it_is_the_same_without_a_record(fleet: Fleet) -> None:
    ended = await ctl("--namesrv", f"rocketmq://{fleet.name_server.remoting_addr}", *RESET, "--to", "latest")
    assert (ended.code, fleet.broker.committed) == (0, {0: MAX, 1: MAX})
    assert "the change is not recorded" in ended.err
