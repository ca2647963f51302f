"""``messages send`` to a Redis broker with an agent and to a RocketMQ broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pointsman.clock import SystemClock
from pointsman.daemon.access.access_settings import Grant
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_client import HashRing, MessageQueue
from tests.kit.access_tokens import TokenFolder
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.in_route import whole_agents
from tests.kit.broker.redis.process import redis_process
from tests.kit.broker.rocketmq.fake_broker import Answer
from tests.kit.ctl.both_brokers import BothBrokers, both_brokers
from tests.kit.ctl.command import Terminal, ctl, running_ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server import wire
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually, read_until

pytestmark = pytest.mark.redis
QUEUES = [("red", 0), ("red", 1), ("rocket", 0), ("rocket", 1)]


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[BothBrokers]:
    async with both_brokers(tmp_path) as found:
        await eventually(lambda: found.agent.groups.core.state.value == "ready")
        yield found


@pytest.fixture
async def consumed(brokers: BothBrokers) -> AsyncIterator[BothBrokers]:
    """The group ``billing`` reads the topic at the agent."""
    consumer = Consumer(brokers.agent.addr, "x@1")
    await consumer.beat(reads("billing", "orders"))
    yield brokers
    await consumer.crash()


async def stored(brokers: BothBrokers) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await brokers.json("messages", "peek", "orders", "--limit", "1000"))["messages"]
    return found


def queues_of(messages: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((each["queue"]["brokerName"], each["queue"]["queueId"]) for each in messages)


async def test_a_message_is_sent_with_its_fields_and_reported(brokers: BothBrokers) -> None:
    arguments = (
        "--body",
        "paid",
        "--key",
        "4711",
        "--key",
        "x",
        "--tag",
        "t",
        "--property",
        "by=ops",
        "--property",
        "e=a=b",
    )
    for name in ("red", "rocket"):
        document = await brokers.json("messages", "send", "orders", *arguments, "--queue", f"{name}/1")
        (sent,) = document["messages"]
        assert (sent["queue"]["brokerName"], sent["queue"]["queueId"], sent["queueOffset"]) == (name, 1, 0)
        assert sent["status"] == "SEND_OK"
        assert 0 < sent["latencySeconds"] < 10
        (found,) = (await brokers.json("messages", "find", "orders", "--id", sent["messageId"]))["messages"]
        assert (found["body"], found["keys"], found["tag"]) == ("paid", ["4711", "x"], "t")
        assert found["properties"] == {"by": "ops", "e": "a=b"}
        assert document["plan"]["groups"] == []
    assert len(await stored(brokers)) == 2


async def test_without_a_queue_messages_go_to_all_in_turn(brokers: BothBrokers) -> None:
    ended = await brokers.ctl("messages", "send", "orders", "--body", "x", "--count", "6")
    assert (ended.code, ended.err) == (0, "")
    plan, body, groups, header, *rows, summary = ended.out.splitlines()
    assert [plan, body] == ["6 messages of 1 bytes to 4 queues of orders", "body: x"]
    assert groups == "groups that receive it: none"
    assert header.split() == ["QUEUE", "OFFSET", "ID", "STATUS", "MS"]
    assert [row.split()[0] for row in rows] == [f"c1/{name}/{queue}" for name, queue in [*QUEUES, *QUEUES[:2]]]
    assert summary.startswith("6 sent, 0 failed; median ")
    assert queues_of(await stored(brokers)) == sorted([*QUEUES, *QUEUES[:2]])


async def test_a_sharding_key_has_the_queue_of_producers(brokers: BothBrokers) -> None:
    ring = HashRing().over([MessageQueue("orders", "c1", name, queue_id) for name, queue_id in QUEUES])
    expected = []
    for key in ("a", "b", "c", "d", "e", "f"):
        await brokers.json("messages", "send", "orders", "--body", key, "--sharding-key", key)
        expected.append((ring.queue_of(key).broker_name, ring.queue_of(key).queue_id))
    assert len(set(expected)) > 1
    assert queues_of(await stored(brokers)) == sorted(expected)


async def test_groups_are_named_and_the_operator_is_asked(consumed: BothBrokers) -> None:
    arguments = ("messages", "send", "orders", "--body", "x")
    refused = await consumed.ctl(*arguments)
    question = "Send 1 message to orders, received by billing?"
    assert refused.code == 2
    assert (
        refused.err == f"pointsmanctl: {question} No terminal for the confirmation: add --yes; see "
        "`pointsmanctl messages send --help`\n"
    )
    answered_no = await consumed.ctl(*arguments, stdin=Terminal("n\n"))
    assert (answered_no.code, question in answered_no.err) == (1, True)
    assert "groups that receive it: billing\n" in answered_no.out
    dry = await consumed.json(*arguments, "--dry-run")
    assert (dry["plan"]["groups"], dry["dryRun"], dry["recorded"], dry["messages"]) == (["billing"], True, [], [])
    assert await stored(consumed) == []
    assert (await consumed.ctl(*arguments, stdin=Terminal("y\n"))).code == 0
    assert len((await consumed.json(*arguments, "--yes"))["messages"]) == 1
    assert len(await stored(consumed)) == 2


async def test_a_group_that_has_left_with_an_offset_is_named(brokers: BothBrokers) -> None:
    brokers.rocketmq.answers[Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = Answer(
        body=b'{"subscriptionGroupTable":{"audit":{},"other":{}}}'
    )
    brokers.rocketmq.answers[Request.GET_CONSUMER_CONNECTION_LIST] = Answer(Code.CONSUMER_NOT_ONLINE)
    brokers.rocketmq.answers[Request.QUERY_TOPIC_CONSUME_BY_WHO] = Answer(body=b'{"groupList":["audit"]}')
    brokers.rocketmq.answers[Request.GET_CONSUME_STATS] = Answer(body=b'{"offsetTable":{}}')
    dry = await brokers.json("messages", "send", "orders", "--body", "x", "--dry-run")
    assert (dry["plan"]["groups"], dry["plan"]["unknown"]) == (["audit"], [])


async def test_where_groups_are_not_known_the_operator_is_asked(brokers: BothBrokers) -> None:
    await brokers.agent.stop()
    ended = await brokers.ctl("messages", "send", "orders", "--body", "x")
    assert ended.code == 2
    assert "received by groups that are not known (c1/red/0)? No terminal" in ended.err
    assert "groups are not known at c1/red/0\n" in ended.out
    document = await brokers.json("messages", "send", "orders", "--body", "x", "--yes")
    assert (document["plan"]["unknown"], len(document["messages"])) == (["c1/red/0"], 1)
    await brokers.agent.start()


async def test_the_history_has_the_author_and_a_dry_run_is_not_in_it(brokers: BothBrokers) -> None:
    await brokers.json("messages", "send", "orders", "--body", "x", "--dry-run")
    await brokers.json("messages", "send", "orders", "--body", "xyz", "--queue", "red/0", "--by", "kim", "--count", "2")
    changes = (await brokers.json("changes"))["changes"]
    assert [(each["by"], each["after"]) for each in changes] == [("kim", "2 of 3 bytes")]
    assert "messages sent to orders" in (await brokers.ctl("changes")).out


async def test_a_queue_that_fails_is_named_and_the_others_get_theirs(brokers: BothBrokers) -> None:
    brokers.redis.kill()
    ended = await brokers.ctl("-o", "json", "messages", "send", "orders", "--body", "x", "--count", "4")
    assert ended.code == 1
    sent = ended.document["messages"]
    assert [each.get("status") for each in sent] == [None, None, "SEND_OK", "SEND_OK"]
    assert [each["error"]["code"] for each in sent[:2]] == ["BROKER_UNREACHABLE"] * 2
    assert "failed: c1/red/0, c1/red/1 (broker " in ended.err


async def test_a_broker_that_is_killed_in_the_middle_takes_what_came_before(brokers: BothBrokers) -> None:
    arguments = ("--body", "x", "--count", "80", "--rate", "40", "--queue", "red/0", "--queue", "rocket/0")
    namesrv = ("--namesrv", brokers.name_server.addr, "-o", "json")
    async with running_ctl(*namesrv, "messages", "send", "orders", *arguments) as command:
        length = partial(brokers.redis.command, "XLEN", "orders:queue:0")
        await read_until(length, lambda found: int(found[1:]) >= 3)
        brokers.redis.kill()
        ended = await command.ended()
    assert ended.code == 1
    by_broker: dict[str, list[bool]] = {"red": [], "rocket": []}
    for each in json.loads(ended.out)["messages"]:
        by_broker[each["queue"]["brokerName"]].append("status" in each)
    assert by_broker["rocket"] == [True] * 40
    assert by_broker["red"] == sorted(by_broker["red"], reverse=True)
    await brokers.redis.start()
    # One that was not answered may be stored, too.
    assert sum(by_broker["red"]) <= int((await length())[1:]) <= sum(by_broker["red"]) + 1
    assert 3 <= sum(by_broker["red"]) < 40


async def test_a_file_is_sent_as_it_is(brokers: BothBrokers, tmp_path: Path) -> None:
    file = tmp_path / "body"
    body = bytes(range(256)) * (15 * 1024)
    await asyncio.to_thread(file.write_bytes, body)
    for name in ("red", "rocket"):
        await brokers.json("messages", "send", "orders", "--file", str(file), "--queue", f"{name}/0")
    folder = tmp_path / "bodies"
    folder.mkdir()
    await brokers.json("messages", "peek", "orders", "--save", str(folder))
    assert [each.read_bytes() == body for each in folder.iterdir()] == [True, True]


async def test_the_rate_spreads_messages_and_an_interrupted_run_shows_what_was_sent(brokers: BothBrokers) -> None:
    arguments = ("messages", "send", "orders", "--body", "x", "--count", "1000", "--rate", "20", "--queue", "red/0")
    async with running_ctl("--namesrv", brokers.name_server.addr, "-o", "json", *arguments) as command:
        length = partial(brokers.redis.command, "XLEN", "orders:queue:0")
        await read_until(length, lambda found: int(found[1:]) >= 3)
        ended = await command.interrupted()
    assert ended.code == 130
    sent = json.loads(ended.out)["messages"]
    # The message that was under way may be stored, without its response.
    assert len(await stored(brokers)) - len(sent) in {0, 1}
    assert len(sent) < 900


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --body or --file, one of both"),
        (["--body", "x", "--file", "/etc/hostname"], "give --body or --file, one of both"),
        (["--file", "/does/not/exist"], "'/does/not/exist' does not exist"),
        (["--body", ""], "body b'' must not be empty"),
        (["--body", "x", "--key", "a b"], "must hold str without spaces"),
        (["--body", "x", "--tag", "a||b"], "tags 'a||b' must be one tag"),
        (["--body", "x", "--property", "by"], "property must be NAME=VALUE, got 'by'"),
        (["--body", "x", "--property", "a=1", "--property", "a=2"], "property 'a' is given twice"),
        (["--body", "x", "--sharding-key", "k", "--queue", "1"], "--sharding-key cannot be combined with --queue"),
        (["--body", "x", "--count", "0"], "'--count'"),
        (["--body", "x", "--rate", "0"], "'--rate'"),
    ],
)
async def test_wrong_usage_is_named_and_nothing_is_sent(brokers: BothBrokers, arguments: list[str], words: str) -> None:
    ended = await brokers.ctl("messages", "send", "orders", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert await stored(brokers) == []


async def test_what_a_broker_does_not_accept_is_a_failure_of_the_queue(brokers: BothBrokers) -> None:
    arguments = ("messages", "send", "orders", "--body", "x", "--property", "KEYS=x", "--queue")
    ended = await brokers.ctl(*arguments, "rocket/0")
    assert (ended.code, "is a name that RocketMQ uses itself: choose another" in ended.err) == (1, True)
    assert (await brokers.ctl(*arguments, "red/0")).code == 0


@pytest.mark.parametrize(
    ("role", "rights", "may_send"),
    [
        ("viewer", {}, False),
        ("broker", {"cluster": "c1", "broker_name": "*"}, False),
        ("client", {}, True),
        ("client", {"group": "billing"}, True),
        ("admin", {}, True),
    ],
)
async def test_every_role_may_look_and_clients_and_admins_may_send(
    tmp_path: Path, role: str, rights: dict[str, Any], may_send: bool
) -> None:
    """As producers: a grant that names a group limits what its client does to groups."""
    tokens = TokenFolder(tmp_path, "me", "agent")
    grants = (Grant(role, identity="me", **rights), Grant("admin", identity="agent"))
    token = tmp_path / "token"
    token.write_text(tokens.tokens["me"])
    history = tmp_path / "history"
    async with (
        redis_process(tmp_path / "redis") as redis,
        running_name_server(history=history, access=tokens.settings(*grants)) as server,
        whole_agents(("red", 0), clock=SystemClock(), name_servers=[]) as (agent,),
        grpc.aio.insecure_channel(server.addr) as channel,
    ):
        await eventually(lambda: agent.groups.core.state.value == "ready")
        who = wire.identity("red", addr=redis.addr)
        request = wire.registration(wire.topic("orders"), who=who, agent_version="0.2.0", agent_addr=agent.addr)
        await RegistrationServiceStub(channel).RegisterBroker(request, metadata=tokens.header("agent"))
        run = partial(ctl, "--namesrv", server.addr, "--timeout", "10", "--token-file", str(token), "messages")
        sent = await run("send", "orders", "--body", "x")
        looked = await run("peek", "orders")
        length = await redis.command("XLEN", "orders:queue:0")
    assert (looked.code, looked.err) == (0, "")
    assert (sent.code, length) == ((0, ":1") if may_send else (1, ":0")), sent.err


async def test_the_help_has_the_keys_of_the_json(brokers: BothBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    document = await brokers.json("messages", "send", "orders", "--body", "x")
    assert undocumented_keys(document, ["messages", "send"], capsys=capsys) == set()
