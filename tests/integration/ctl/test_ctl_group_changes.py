"""``group delete`` and ``group set``: agents and their stores, Redis streams, and RocketMQ brokers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from pointsman.clock import SystemClock
from pointsman.daemon.access.access_settings import Grant
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_agent.core.queue import QueueKey
from tests.kit.access_tokens import TokenFolder
from tests.kit.agent.group_clients import reads
from tests.kit.agent.in_route import WholeAgent
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.fleet import Fleet, a_fleet
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server

GROUP, RETRY, DLQ = "billing", "%RETRY%billing", "%DLQ%billing"


def commit(*agents: WholeAgent) -> None:
    for agent in agents:
        agent.replica_offsets.commit(GROUP, {QueueKey("orders", 0): 5}, reset=False, now=1)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(SystemClock(), history=tmp_path / "history") as found:
        yield found


async def test_a_group_is_deleted_at_every_agent_and_the_history_has_it(fleet: Fleet) -> None:
    commit(fleet.one, fleet.two, fleet.replica)
    shown = await fleet.ctl("group", "delete", GROUP, "--dry-run")
    kept = [agent.offsets.groups() for agent in (fleet.one, fleet.two, fleet.replica)]
    made = await fleet.ctl("group", "delete", GROUP, "--yes", "--by", "ops")
    again = await fleet.ctl("group", "delete", GROUP, "--yes")
    changes = (await fleet.json("changes")).document["changes"]

    assert (shown.code, kept) == (0, [[GROUP]] * 3)
    assert "deleted" not in shown.out
    assert made.code == 0, made.err
    assert made.out.count("1 offset of group billing deleted\n") == 3
    assert [agent.offsets.groups() for agent in (fleet.one, fleet.two, fleet.replica)] == [[]] * 3
    assert (again.code, again.out) == (1, "")
    assert "nothing of group billing is at" in again.err
    (change,) = changes
    assert (change["event"], change["by"], change["what"]) == (
        "BROKER_DATA_CHANGED",
        "ops",
        "deletion of group billing",
    )
    assert change["before"] == {"offsets": 3, "retries": 0, "deadLetters": 0}


async def test_a_group_with_members_is_rejected_and_they_are_named(fleet: Fleet) -> None:
    commit(fleet.one)
    await fleet.join(fleet.two, "10.0.0.1@7", reads(GROUP))
    made = await fleet.json("group", "delete", GROUP, "--yes")

    assert made.code == 1
    error = json.loads(made.err)["error"]
    assert (error["code"], error["message"]) == ("GROUP_IN_USE", "consumer group billing has 1 member: 10.0.0.1@7")
    assert fleet.one.offsets.groups() == [GROUP]


async def test_an_agent_that_is_down_stops_the_deletion_before_it_begins(fleet: Fleet) -> None:
    commit(fleet.one)
    await fleet.two.stop()
    made = await fleet.ctl("group", "delete", GROUP, "--yes")

    assert made.code == 1
    assert fleet.two.addr in made.err
    assert fleet.one.offsets.groups() == [GROUP]


async def test_the_settings_of_agents_are_in_their_files_and_the_table_is_shown(fleet: Fleet) -> None:
    made = await fleet.json("group", "set", GROUP, "--no-notify", "--hold-down", "5")
    retries = await fleet.ctl("group", "set", GROUP, "--retry-max", "5")

    error = json.loads(made.err)["error"]
    assert (made.code, error["code"]) == (1, "SETTINGS_IN_FILE")
    table = '[[groups.group]]\nname = "billing"\nnotify = false\nhold_down_seconds = 5'
    assert error["hint"] == f"add this to it and restart these agents:\n{table}"
    assert retries.code == 1
    assert "set max_reconsume_times of the consumers" in retries.err


async def test_group_without_the_name_of_a_command_shows_the_group(fleet: Fleet) -> None:
    await fleet.join(fleet.one, "10.0.0.1@7", reads("delete"), reads(GROUP))
    for typed in ([GROUP], ["show", GROUP], ["show", "delete"]):
        shown = await fleet.ctl("group", *typed)
        assert shown.code == 0, shown.err
        assert "10.0.0.1@7" in shown.out
    assert "Missing argument 'GROUP'" in (await fleet.ctl("group", "delete")).err


# RocketMQ brokers, and Redis streams


class Groups:
    """What a RocketMQ broker has of groups."""

    def __init__(self, brokers: BothBrokers) -> None:
        self.configs: dict[str, dict[str, Any]] = {
            GROUP: {"groupName": GROUP, "retryMaxTimes": 16, "consumeBroadcastEnable": True, "attributes": {"a": "b"}},
        }
        self.topics: list[str] = []
        # The kit answers that there is no group.
        brokers.rocketmq.answers.clear()
        brokers.rocketmq.handlers |= {
            Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._list,
            Request.GET_CONSUMER_CONNECTION_LIST: lambda _, __: Answer(Code.CONSUMER_NOT_ONLINE, remark="not online"),
            Request.GET_CONSUME_STATS: lambda _, __: Answer(body=b'{"consumeTps":0.0,"offsetTable":{}}'),
            Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
            Request.DELETE_SUBSCRIPTIONGROUP: self._delete,
            Request.DELETE_TOPIC_IN_BROKER: self._delete_topic,
        }

    def _list(self, _: Command, __: bytes) -> Answer:
        return Answer(body=json.dumps({"subscriptionGroupTable": self.configs}).encode())

    def _update(self, _: Command, body: bytes) -> Answer:
        config = json.loads(body)
        self.configs[config["groupName"]] = config
        return Answer()

    def _delete(self, command: Command, _: bytes) -> Answer:
        assert (command.ext["cleanOffset"], command.ext["removeOffset"]) == ("true", "true")
        self.configs.pop(command.ext["groupName"], None)
        return Answer()

    def _delete_topic(self, command: Command, _: bytes) -> Answer:
        self.topics.append(command.ext["topic"])
        return Answer()


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path, topics=("orders", RETRY, DLQ)) as found:
        yield found


@pytest.fixture
def groups(brokers: BothBrokers) -> Groups:
    return Groups(brokers)


async def keys_of(brokers: BothBrokers) -> set[str]:
    client = Redis(host="127.0.0.1", port=brokers.redis.port, decode_responses=True)
    try:
        return {str(key) for key in await client.keys("*")}
    finally:
        await client.aclose()


@pytest.mark.redis
async def test_retries_and_dead_letters_are_deleted_only_when_it_is_said(brokers: BothBrokers, groups: Groups) -> None:
    await brokers.store("red", 1, b"one", b"two", topic=RETRY)
    await brokers.store("rocket", 0, b"three", topic=DLQ)
    await brokers.store("red", 0, b"four", topic="orders")
    commit(brokers.agent)
    refused = await brokers.ctl("group", "delete", GROUP, "--yes")
    made = await brokers.ctl("group", "delete", GROUP, "--yes", "--delete-messages")

    assert refused.code == 1
    assert "2 unread retries and 1 dead letter of group billing would be lost: nothing was deleted" in refused.err
    assert made.code == 0, made.err
    assert brokers.agent.offsets.groups() == []
    assert f"{brokers.redis.addr}: 1 queue of retries and dead letters removed\n" in made.out
    assert groups.configs == {}
    assert groups.topics == [RETRY, DLQ]
    assert await keys_of(brokers) == {"orders:queue:0"}


@pytest.mark.redis
async def test_settings_change_alone_and_the_others_stay(brokers: BothBrokers, groups: Groups) -> None:
    made = await brokers.ctl("group", "set", GROUP, "--retry-max", "5", "--no-notify", "--yes", "--by", "ops")
    again = await brokers.ctl("group", "set", GROUP, "--retry-max", "5", "--yes")
    changes = (await brokers.ctl("-o", "json", "changes")).document["changes"]

    assert made.code == 0, made.err
    assert "the configuration of c1/red/0 has the settings of their groups; add this to it" in made.err
    assert "the retries of groups at c1/red/0 are a setting of their consumers" in made.err
    assert "notify on, retries at most 16  notify off, retries at most 5\n" in made.out
    assert groups.configs[GROUP] == {
        "groupName": GROUP,
        "retryMaxTimes": 5,
        "consumeBroadcastEnable": True,
        "notifyConsumerIdsChangedEnable": False,
        "attributes": {},
    }
    assert again.code == 0
    assert brokers.rocketmq.codes().count(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP) == 1
    (change,) = changes
    assert (change["by"], change["before"], change["after"]) == (
        "ops",
        {"notify": True, "retryMax": 16},
        {"notify": False, "retryMax": 5},
    )
    assert change["undo"] == "pointsmanctl group set billing --notify --retry-max 16"


@pytest.mark.redis
async def test_a_group_that_a_broker_does_not_have_is_created(brokers: BothBrokers, groups: Groups) -> None:
    made = await brokers.ctl("group", "set", "audit", "--retry-max", "3", "--yes")

    assert made.code == 0, made.err
    assert "no such group" in made.out
    assert groups.configs["audit"] == {"groupName": "audit", "retryMaxTimes": 3}


@pytest.mark.redis
async def test_rocketmq_brokers_have_no_hold_down(brokers: BothBrokers, groups: Groups) -> None:
    made = await brokers.ctl("group", "set", GROUP, "--hold-down", "5", "--notify", "--yes")
    alone = await brokers.ctl("group", "set", GROUP, "--hold-down", "5", "--yes")

    assert made.code == 0
    assert "RocketMQ brokers have no hold-down: c1/rocket/0; leave out --hold-down" in made.err
    assert (alone.code, alone.out) == (1, "")
    assert 'name = "billing"\nhold_down_seconds = 5' in alone.err
    assert groups.configs[GROUP]["retryMaxTimes"] == 16


@pytest.mark.redis
async def test_a_broker_that_refuses_is_named_and_the_exit_code_is_1(brokers: BothBrokers, groups: Groups) -> None:
    brokers.rocketmq.answers[Request.DELETE_SUBSCRIPTIONGROUP] = Answer(Code.SYSTEM_ERROR, remark="disk full")
    first = await brokers.ctl("group", "delete", GROUP, "--yes")
    del brokers.rocketmq.answers[Request.DELETE_SUBSCRIPTIONGROUP]
    second = await brokers.ctl("group", "delete", GROUP, "--yes")

    assert first.code == 1
    assert "disk full" in first.err
    assert (second.code, groups.configs) == (0, {})


@pytest.mark.redis
@pytest.mark.parametrize("command", [["delete", GROUP], ["set", GROUP, "--retry-max", "5"]])
async def test_the_keys_of_the_json_are_in_the_help(
    brokers: BothBrokers, groups: Groups, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    del groups
    made: Ended = await brokers.ctl("-o", "json", "group", *command, "--yes")
    assert made.code == 0, made.err
    assert undocumented_keys(made.document, ["group", command[0]], capsys=capsys) == set()


async def test_without_a_terminal_both_need_yes(fleet: Fleet) -> None:
    commit(fleet.one)
    made = await fleet.ctl("group", "delete", GROUP)
    assert made.code == 2
    assert "Delete group billing with 1 offset? No terminal for the confirmation: add --yes" in made.err
    assert (await fleet.ctl("group", "set", GROUP)).code == 2


GRANTS = (
    Grant(identity="red", role="broker", cluster="c1", broker_name="red"),
    Grant(identity="shop", role="client"),
    Grant(identity="cashier", role="client", group=GROUP),
    Grant(identity="other", role="client", group="other"),
    Grant(identity="guest", role="viewer"),
    Grant(identity="ops", role="admin"),
)


async def test_who_may_not_record_the_change_changes_nothing(tmp_path: Path) -> None:
    """At the name server; the agent's own grants have their test with the agent."""
    tokens = TokenFolder(tmp_path, *(grant.identity for grant in GRANTS))
    async with running_name_server(access=tokens.settings(*GRANTS)) as server:
        agent = WholeAgent("red", broker_id=0, clock=SystemClock(), name_servers=[server.addr], warm_up=0.0)
        await agent.start()
        try:
            async with grpc.aio.insecure_channel(server.addr) as channel:
                request = wire.registration(wire.topic("orders"), who=agent.identity, agent_addr=agent.addr)
                await RegistrationServiceStub(channel).RegisterBroker(request, metadata=tokens.header("red"))
            codes: dict[str, tuple[int | None, int | None]] = {}
            for who in tokens.tokens:
                commit(agent)
                file = tmp_path / who
                file.write_text(tokens.tokens[who])
                run = partial(ctl, "--namesrv", server.addr, "--token-file", str(file), "group", "delete", GROUP)
                shown, made = await run("--dry-run"), await run("--yes")
                codes[who] = shown.code, made.code
                assert ("rejected by" in made.err) is bool(made.code), made
                assert agent.offsets.groups() == ([GROUP] if made.code else [])
        finally:
            await agent.stop()
    assert codes == {
        "red": (0, 1),
        "shop": (0, 0),
        "cashier": (0, 0),
        "other": (0, 1),
        "guest": (0, 1),
        "ops": (0, 0),
    }
