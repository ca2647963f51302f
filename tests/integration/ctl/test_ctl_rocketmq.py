"""``pointsmanctl`` where brokers are RocketMQ's: they are queried themselves, through either kind of name server."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client import AccessKey
from pointsman_ctl.commands.agent_round import NOT_LISTED
from pointsman_ctl.output.error_report import ACCESS_KEY_HINT
from pointsman_ctl.servers.rocketmq_broker import MAX_CLIENTS, MAX_SILENT_CLIENTS
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.config import RemotingConfig
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.in_route import whole_agents
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.frames import broker_ext, register, register_body, topic_config
from tests.kit.broker.rocketmq.name_server import reply, rocketmq_name_server
from tests.kit.broker.rocketmq.peer import RemotingPeer, remoting_peer
from tests.kit.certificates import Authority
from tests.kit.ctl.command import Ended, ctl
from tests.kit.ctl.keys import undocumented_keys
from tests.kit.name_server.in_process import running_name_server
from tests.kit.name_server.scripted_routes import refused_addr
from tests.kit.tls_peers import context, tls_config

GRPC, REMOTING = "grpc", "remoting"
through_both = pytest.mark.parametrize("kind", [GRPC, REMOTING])
"""Through both ports of the name server."""
ONLINE = ("billing", "audit")


def groups_body(_: Command, __: bytes) -> Answer:
    names = (*ONLINE, "idle")
    return Answer(body=json.dumps({"subscriptionGroupTable": {name: {"groupName": name} for name in names}}).encode())


def connections(group: str, *client_ids: str) -> Answer:
    body = {
        "connectionSet": [
            {"clientAddr": f"10.0.0.9:{number}", "clientId": each, "language": "JAVA", "version": 479}
            for number, each in enumerate(client_ids)
        ],
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"orders": {"subString": "A"}, f"%RETRY%{group}": {"subString": "*"}},
    }
    return Answer(body=json.dumps(body).encode())


def progress(command: Command, _: bytes) -> Answer:
    if command.ext["consumerGroup"] != "billing":
        return Answer(body=b'{"consumeTps":0.0,"offsetTable":{}}')
    entries = ",".join(
        f'{{"brokerName":"a","queueId":{queue},"topic":"orders"}}:{{"brokerOffset":10,"consumerOffset":{7 + queue}}}'
        for queue in range(2)
    )
    return Answer(body=f'{{"consumeTps":0.0,"offsetTable":{{{entries}}}}}'.encode())


class GroupBroker(FakeBroker):
    """A broker at which groups have members."""

    def __init__(self, *members: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.handlers |= {
            Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups_body,
            Request.GET_CONSUMER_CONNECTION_LIST: lambda command, _: (
                connections(command.ext["consumerGroup"], *members)
                if command.ext["consumerGroup"] in ONLINE
                else Answer(Code.CONSUMER_NOT_ONLINE, remark="not online")
            ),
            Request.GET_CONSUME_STATS: progress,
        }


@dataclass
class Fleet:
    """Brokers ``a`` and ``b`` that registered over RocketMQ's protocol."""

    name_server: NameServerApp
    a: GroupBroker
    b: GroupBroker
    connections: AsyncExitStack

    async def register(self, name: str, addr: str, broker_id: int = 0) -> None:
        topics = register_body({name: topic_config(name) for name in ("orders", "bills")})
        peer = await self.connections.enter_async_context(remoting_peer(self.name_server.remoting_addr))
        peer.send(register(broker_ext(name, broker_id, addr, clusterName="c1"), topics))
        assert (await peer.answer()).code == 0

    async def ctl(self, kind: str, *arguments: str, access_key_file: str = "") -> Ended:
        addr = self.name_server.addr if kind == GRPC else f"rocketmq://{self.name_server.remoting_addr}"
        return await ctl("--namesrv", addr, *arguments, POINTSMAN_ACCESS_KEY_FILE=access_key_file)

    async def json(self, kind: str, *arguments: str) -> Any:
        ended = await self.ctl(kind, "-o", "json", *arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.document


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")))
        a = await stack.enter_async_context(GroupBroker("x@1", "y@2"))
        b = await stack.enter_async_context(GroupBroker("x@1"))
        running = Fleet(server, a, b, stack)
        await running.register("a", a.addr)
        await running.register("b", b.addr)
        yield running


@through_both
async def test_groups_are_merged_from_the_brokers(fleet: Fleet, kind: str) -> None:
    table = await fleet.ctl(kind, "groups")
    assert table == Ended(
        0,
        "GROUP    MEMBERS  AGENTS  LAG  IN/S  OUT/S  MODEL       TOPICS  FLAGS\n"
        "audit          2     2/2    -     -      -  CLUSTERING  orders  DIFFERS\n"
        "billing        2     2/2   10     -      -  CLUSTERING  orders  DIFFERS\n"
        + ("" if kind == GRPC else f"{NOT_LISTED}\n"),
        "",
    )
    document = await fleet.json(kind, "groups")
    assert (document["notCounted"], document["isAbsentKnown"]) == ([], kind == GRPC)
    assert [each["group"] for each in document["groups"]] == ["audit", "billing"]
    assert {each["addr"]: each["brokers"] for each in document["agents"]} == {
        fleet.a.addr: ["c1/a/0"],
        fleet.b.addr: ["c1/b/0"],
    }


async def test_groups_are_listed_by_brokers_that_do_not_report_offsets(fleet: Fleet) -> None:
    for broker in (fleet.a, fleet.b):
        broker.answers[Request.GET_CONSUME_STATS] = Answer(code=Code.NO_PERMISSION, remark="denied")
    document = await fleet.json(REMOTING, "groups")
    assert [(each["group"], each["members"], each["lag"]) for each in document["groups"]] == [
        ("audit", 2, None),
        ("billing", 2, None),
    ]


@through_both
async def test_members_have_their_language_and_version(fleet: Fleet, kind: str) -> None:
    table = await fleet.ctl(kind, "group", "billing")
    assert table.code == 0
    header, first, second, differs, *_ = table.out.splitlines()
    assert header.split()[:4] == ["MEMBER", "PEER", "CLIENT", "SINCE"]
    assert " ".join(first.split()) == "x@1 10.0.0.9:0 JAVA 5.3.3 - - 2/2 orders (A) -"
    assert second.split()[0] == "y@2"
    assert differs == f"DIFFERS: {fleet.b.addr} (c1/b/0) does not know y@2"
    (member, _) = (await fleet.json(kind, "group", "billing"))["members"]
    assert (member["client"], member["joinedAt"], member["silentSeconds"]) == ("JAVA 5.3.3", None, None)
    assert member["consumeTypes"] == ["PUSH"]

    absent = await fleet.ctl(kind, "group", "idle")
    assert (absent.code, absent.out) == (1, "")
    assert "consumer group idle has no members" in absent.err
    fleet.a.answers[Request.GET_CONSUME_STATS] = fleet.b.answers[Request.GET_CONSUME_STATS] = Answer(
        body=b'{"offsetTable":{}}'
    )
    absent = await fleet.ctl(kind, "offsets", "idle")
    assert (absent.code, absent.out) == (1, "")
    assert "consumer group idle has no committed offset at the 2 brokers" in absent.err
    await fleet.b.stop()
    partly = await fleet.ctl(kind, "--output", "json", "offsets", "idle")
    warning, error = map(json.loads, partly.err.splitlines())
    assert (warning["warning"]["code"], error["error"]["code"]) == ("BROKERS_NOT_COUNTED", "GROUP_NOT_FOUND")


@through_both
async def test_offsets_have_their_ends(fleet: Fleet, kind: str) -> None:
    for arguments in (["offsets", "billing"], ["offsets"]):
        document = await fleet.json(kind, *arguments)
        (total,) = document["totals"]
        assert (total["group"], total["queues"], total["lag"], total["queuesWithoutEnd"]) == ("billing", 4, 10, 0)
        assert document["offsets"][0] == {
            "group": "billing",
            "topic": "orders",
            "agent": fleet.a.addr,
            "brokers": ["c1/a/0"],
            "queueId": 0,
            "committedOffset": 7,
            "maxOffset": 10,
            "lag": 3,
            "isBeyondEnd": False,
        }


@through_both
async def test_the_queues_of_a_group_have_their_lag_and_nothing_that_a_broker_does_not_know(
    fleet: Fleet, kind: str
) -> None:
    shown = await fleet.ctl(kind, "group", "billing", "--queues")
    rows = [line.split() for line in shown.out.splitlines() if line.startswith("orders")]
    assert shown.code == 0
    assert rows
    assert {(row[3], *row[5:]) for row in rows} == {("-",) * 8}
    assert sum(int(row[4]) for row in rows) > 0


def running_info(*queues: int, cached: int = 5, pulled_before: float = 2.0) -> Answer:
    """What a client reports: queues at the broker ``a``."""
    pulled_at = int((time.time() - pulled_before) * 1000)
    entries = ",".join(
        f'{{"brokerName":"a","queueId":{queue},"topic":"orders"}}:'
        f'{{"cachedMsgCount":{cached},"droped":false,"lastPullTimestamp":{pulled_at}}}'
        for queue in queues
    )
    return Answer(body=f'{{"mqTable":{{{entries}}},"properties":{{}}}}'.encode())


@through_both
async def test_clients_report_their_queues_and_one_that_does_not_respond_leaves_its_own_unknown(
    fleet: Fleet, kind: str
) -> None:
    async def pass_on(command: Command, _: bytes) -> Answer:
        if command.ext["clientId"] == "y@2":
            await asyncio.sleep(60.0)
        return running_info(0)

    fleet.a.handlers[Request.GET_CONSUMER_RUNNING_INFO] = pass_on
    await fleet.b.stop()
    began_at = time.monotonic()
    shown = await fleet.ctl(kind, "--timeout", "20", "group", "billing", "--queues")
    assert time.monotonic() - began_at < 10.0
    rows = [line.split() for line in shown.out.splitlines() if line.startswith("orders")]
    assert "c1/b/0" in shown.err
    assert [row[2:5] for row in rows] == [["0", "x@1", "3"], ["1", "-", "2"]]
    assert rows[0][-3] == "5"
    assert 2.0 <= float(rows[0][-2].removesuffix("s")) < 20.0
    assert rows[1][-3:] == ["-", "-", "-"]
    asked = [each for each in fleet.a.requests if each.code == Request.GET_CONSUMER_RUNNING_INFO]
    assert {(each.ext["consumerGroup"], each.ext["clientId"], each.ext["jstackEnable"]) for each in asked} == {
        ("billing", "x@1", "false"),
        ("billing", "y@2", "false"),
    }
    assert {each.code for each in fleet.a.requests} == {
        Request.GET_CONSUMER_CONNECTION_LIST,
        Request.GET_CONSUME_STATS,
        Request.GET_CONSUMER_RUNNING_INFO,
    }


async def test_of_two_clients_of_a_queue_the_one_that_pulled_last_owns_it(fleet: Fleet) -> None:
    fleet.a.handlers[Request.GET_CONSUMER_RUNNING_INFO] = lambda command, _: (
        running_info(0, 1, cached=9, pulled_before=30.0) if command.ext["clientId"] == "y@2" else running_info(0)
    )
    queues = [
        each
        for each in (await fleet.json(GRPC, "group", "billing", "--queues"))["queues"]
        if each["agent"] == fleet.a.addr
    ]
    assert [(each["queueId"], each["clientId"], each["cachedMessages"]) for each in queues] == [
        (0, "x@1", 5),
        (1, "y@2", 9),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(Code.SYSTEM_ERROR, remark="The Consumer <billing> <x@1> not online"),
        Answer(Code.NO_PERMISSION, remark="not signed"),
        Answer(body=b"{"),
    ],
    ids=["offline", "denied", "unreadable"],
)
async def test_a_client_without_a_usable_response_leaves_its_queues_unknown(fleet: Fleet, answer: Answer) -> None:
    fleet.a.answers[Request.GET_CONSUMER_RUNNING_INFO] = answer
    document = await fleet.json(GRPC, "group", "billing", "--queues")
    assert {
        (each["clientId"], each["cachedMessages"], each["sinceLastPullSeconds"]) for each in document["queues"]
    } == {(None, None, None)}


@pytest.mark.parametrize(
    ("delay", "least", "most"),
    [
        pytest.param(0.0, MAX_CLIENTS, MAX_CLIENTS, id="at-most-100"),
        pytest.param(0.5, 2 * MAX_SILENT_CLIENTS, 6 * MAX_SILENT_CLIENTS, id="for-3-seconds"),
        pytest.param(60.0, MAX_SILENT_CLIENTS, 2 * MAX_SILENT_CLIENTS - 1, id="none-after-4-without-a-response"),
    ],
)
async def test_clients_are_queried_within_bounds(fleet: Fleet, delay: float, least: int, most: int) -> None:
    async def pass_on(_: Command, __: bytes) -> Answer:
        await asyncio.sleep(delay)
        return running_info(0)

    fleet.a.handlers[Request.GET_CONSUMER_CONNECTION_LIST] = lambda command, _: connections(
        command.ext["consumerGroup"], *(f"x@{number}" for number in range(MAX_CLIENTS + 20))
    )
    fleet.a.handlers[Request.GET_CONSUMER_RUNNING_INFO] = pass_on
    shown = await fleet.ctl(GRPC, "--timeout", "20", "group", "billing", "--queues")
    assert shown.code == 0
    queried = sum(each.code == Request.GET_CONSUMER_RUNNING_INFO for each in fleet.a.requests)
    assert least <= queried <= most


@through_both
async def test_brokers_that_fail_are_named(fleet: Fleet, kind: str) -> None:
    for answer, text in (
        (Answer(body=b'{"offsetTable":{"orders":7}}'), "GET_CONSUME_STATS (208) cannot be read: offsetTable"),
        (Answer(Code.NO_PERMISSION, remark="not signed"), "NO_PERMISSION 16: not signed"),
        (Answer(Code.REQUEST_CODE_NOT_SUPPORTED, remark="old"), "REQUEST_CODE_NOT_SUPPORTED 3: old"),
    ):
        fleet.b.answers[Request.GET_CONSUME_STATS] = answer
        some = await fleet.ctl(kind, "offsets", "billing")
        assert some.code == 1
        assert "1 broker not counted: c1/b/0" in some.err
        assert fleet.b.addr in some.err
        assert text in some.err
    fleet.a.dropped.add(Request.GET_CONSUME_STATS)
    none = await fleet.ctl(kind, "--timeout", "0.5", "offsets", "billing")
    assert (none.code, none.out) == (1, "")
    assert f"{fleet.a.addr} (no response in time)" in none.err
    await fleet.b.stop()
    refused = await fleet.ctl(kind, "group", "billing")
    assert refused.code == 1
    assert f"c1/b/0 ({fleet.b.addr}: connection refused)" in refused.err
    await fleet.a.stop()
    down = await fleet.ctl(kind, "groups")
    assert down.code == 1
    assert "no broker is responding" in down.err
    assert "check that the broker runs" in down.err


async def test_the_lag_does_not_fall_when_a_broker_departs(clock: ManualClock) -> None:
    async with (
        running_name_server(clock=clock, remoting=RemotingConfig(listen="127.0.0.1:0")) as server,
        GroupBroker() as a,
        GroupBroker() as b,
        AsyncExitStack() as stack,
    ):
        fleet = Fleet(server, a, b, stack)
        await fleet.register("b", b.addr)
        await clock.advance(130.0)
        await fleet.register("a", a.addr)
        assert (await fleet.json(GRPC, "offsets", "billing"))["totals"][0]["lag"] == 10
        await b.stop()
        made = await fleet.ctl(GRPC, "-o", "json", "offsets", "billing")
        locks = await fleet.ctl(GRPC, "locks")

    assert locks.code == 1
    assert "no broker has an agent that can be queried: c1/a/0, c1/b/0 GONE" in locks.err
    assert made.code == 1
    assert made.document["notCounted"] == [
        {"broker": "c1/b/0", "state": "GONE", "addr": b.addr, "reason": "connection refused"}
    ]
    assert json.loads(made.err)["error"]["code"] == "BROKERS_NOT_COUNTED"


@through_both
async def test_a_slave_without_a_master_is_named_and_counts_with_all(kind: str) -> None:
    async with (
        running_name_server(remoting=RemotingConfig(listen="127.0.0.1:0")) as server,
        GroupBroker() as a,
        GroupBroker() as slave,
        AsyncExitStack() as stack,
    ):
        fleet = Fleet(server, a, slave, stack)
        await fleet.register("a", a.addr)
        await fleet.register("b", slave.addr, 1)
        made = await fleet.ctl(kind, "-o", "json", "offsets", "billing")
        whole = await fleet.json(kind, "offsets", "billing", "--all")

    assert made.code == 1
    assert [(each["broker"], each["state"]) for each in made.document["notCounted"]] == [("c1/b", "NO MASTER")]
    assert whole["totals"][0]["lag"] == 10


@through_both
async def test_replicas_are_queried_on_request(fleet: Fleet, kind: str) -> None:
    async with GroupBroker("x@1") as slave:
        await fleet.register("a", slave.addr, broker_id=1)
        assert len((await fleet.json(kind, "groups"))["agents"]) == 2
        assert slave.addr in {each["addr"] for each in (await fleet.json(kind, "groups", "--all"))["agents"]}


@through_both
async def test_routes_are_the_same_over_both_protocols(fleet: Fleet, kind: str) -> None:
    for command in (["route", "orders"], ["topics"], ["clusters"], ["route", "orders", "--cluster", "c1"]):
        assert await fleet.ctl(kind, *command) == await fleet.ctl(GRPC, *command)
    for command in (["route", "nowhere"], ["topics", "--cluster", "none"], ["groups", "--cluster", "none"]):
        ended = await fleet.ctl(kind, *command)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (await fleet.ctl(GRPC, *command)).err


@through_both
async def test_commands_for_pointsman_say_so(fleet: Fleet, kind: str) -> None:
    for command in (["brokers"], ["health"], ["watch", "orders"], ["locks"], ["top", "--once"], ["kv", "list", "n"]):
        ended = await fleet.ctl(kind, *command, *(["--for", "1s"] if command[0] == "watch" else []))
        if kind == REMOTING:
            assert (ended.code, ended.out) == (2, "")
            assert ended.err.count("\n") == 1
            assert "requires a name server of Pointsman, got rocketmq://" in ended.err
        else:
            assert "requires" not in ended.err


@through_both
async def test_a_name_server_that_is_down(fleet: Fleet, kind: str) -> None:
    async with refused_addr() as closed:
        scheme = "rocketmq://" if kind == REMOTING else ""
        none = await ctl("--namesrv", f"{scheme}{closed}", "topics")
        assert none.code == 1
        assert "no name server is responding" in none.err
        alive = f"{scheme}{fleet.name_server.remoting_addr if kind == REMOTING else fleet.name_server.addr}"
        for command, code in (("topics", 0), ("groups", 1)):
            made = await ctl("--namesrv", f"{scheme}{closed},{alive}", command)
            assert (made.code, "brokers that only it knows are missing" in made.err) == (code, bool(code))


@through_both
async def test_requests_are_signed_by_the_account_of_a_file(fleet: Fleet, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: ops\nsecretKey: hunter2\n")
    account = AccessKey("ops", "hunter2")
    for command in (["groups"], ["group", "billing"], ["offsets", "billing"]):
        assert (await fleet.ctl(kind, *command, access_key_file=str(file))).code == 0
    assert {Request.GET_CONSUMER_CONNECTION_LIST, Request.GET_CONSUME_STATS} <= set(fleet.a.codes())
    for request in fleet.a.requests:
        unsigned = {name: value for name, value in request.ext.items() if name not in {"AccessKey", "Signature"}}
        assert request.ext == account.signed(unsigned, b"")


@through_both
@pytest.mark.parametrize(
    ("denial", "reason"),
    [
        (Answer(Code.NO_PERMISSION, remark="check signature failed."), "NO_PERMISSION 16: check signature failed."),
        (
            Answer(
                Code.SYSTEM_ERROR,
                remark="org.apache.rocketmq.acl.common.AclException: No accessKey is configured, "
                "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)",
            ),
            "SYSTEM_ERROR 1: AclException: No accessKey is configured",
        ),
    ],
)
async def test_a_denial_says_which_account_is_needed(fleet: Fleet, kind: str, denial: Answer, reason: str) -> None:
    for broker in (fleet.a, fleet.b):
        broker.answers[Request.GET_CONSUME_STATS] = denial
    ended = await fleet.ctl(kind, "offsets", "billing")
    assert (ended.code, ended.out) == (1, "")
    texts = ", ".join(f"{addr} (GET_CONSUME_STATS (208): {reason})" for addr in sorted((fleet.a.addr, fleet.b.addr)))
    assert ended.err == f"pointsmanctl: rejected by {texts}; {ACCESS_KEY_HINT}\n"
    error = json.loads((await fleet.ctl(kind, "-o", "json", "offsets", "billing")).err)["error"]
    assert error["code"] == "ACCESS_DENIED"


async def test_a_name_server_that_denies_access_is_named() -> None:
    async with rocketmq_name_server() as server:
        server.respond = lambda request: reply(request, code=16, remark="no such account")
        for command in (["route", "orders"], ["groups"]):
            ended = await ctl("--namesrv", server.addr, *command)
            assert (ended.code, ended.out) == (1, "")
            assert f"{server.addr} rejected the request: GET_" in ended.err
            assert ended.err.endswith(f"NO_PERMISSION 16: no such account; {ACCESS_KEY_HINT}\n")
        server.respond = lambda request: reply(request, code=1, remark="not ready")
        ended = await ctl("--namesrv", server.addr, "route", "orders")
        assert f"{server.addr} (GET_ROUTEINFO_BY_TOPIC (105): SYSTEM_ERROR 1: not ready)" in ended.err


@dataclass
class TlsFleet:
    """A name server and a broker with certificates of one authority."""

    addrs: Mapping[str, str]
    """Of the name server, by kind."""
    broker: GroupBroker
    ca: Path
    other_ca: Path

    async def groups(self, kind: str, *options: str) -> Ended:
        return await ctl("--namesrv", self.addrs[kind], *options, "groups")


@pytest.fixture
async def tls_fleet(tmp_path: Path) -> AsyncIterator[TlsFleet]:
    files = Authority(tmp_path).issue("server", "127.0.0.1", "mq.test")
    other = Authority(tmp_path, "other").file
    remoting = RemotingConfig(listen="127.0.0.1:0", tls="required")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(files.certificate, files.key)
    async with (
        running_name_server(tls=tls_config(files), remoting=remoting) as server,
        GroupBroker("x@1", tls=own) as broker,
        remoting_peer(server.remoting_addr, tls=context(files.ca)) as peer,
    ):
        peer.send(register(broker_ext("a", 0, broker.addr, clusterName="c1"), register_body()))
        assert (await peer.answer()).code == 0
        addrs = {GRPC: server.addr, REMOTING: f"rocketmq://{server.remoting_addr}"}
        yield TlsFleet(addrs, broker, files.ca, other)


@through_both
async def test_tls_is_for_name_servers_and_brokers(tls_fleet: TlsFleet, kind: str) -> None:
    trusting = ("--tls-ca", str(tls_fleet.ca), *(["--rocketmq-tls"] if kind == GRPC else []))
    for more in ([], ["--tls-server-name", "mq.test"]):
        ended = await tls_fleet.groups(kind, *trusting, *more)
        assert (ended.code, ended.err) == (0, "")
        assert "billing" in ended.out
    for options, problem in (
        (
            ["--tls-ca", str(tls_fleet.other_ca), "--rocketmq-tls"],
            "is not signed by a trusted CA: check --tls-ca",
        ),
        (
            [*trusting, "--tls-server-name", "else.test"],
            "is for another host: connect to a name in it, or give --tls-server-",
        ),
    ):
        ended = await tls_fleet.groups(kind, *options)
        assert (ended.code, ended.out) == (1, "")
        assert problem in ended.err
        assert ended.err.count("\n") == 1


async def test_a_connection_without_tls_says_what_is_missing(tls_fleet: TlsFleet) -> None:
    for kind, options, who in (
        (REMOTING, [], tls_fleet.addrs[REMOTING]),
        (GRPC, ["--tls-ca", str(tls_fleet.ca)], tls_fleet.broker.addr),
    ):
        ended = await tls_fleet.groups(kind, *options)
        assert (ended.code, ended.out) == (1, "")
        assert f"{who} (it closed the connection before any response; if it requires TLS" in ended.err
        assert ended.err.endswith("; give --rocketmq-tls and --tls-ca\n")


@through_both
async def test_tls_to_a_plaintext_port_is_named(fleet: Fleet, kind: str) -> None:
    ended = await fleet.ctl(kind, "--rocketmq-tls", "groups")
    assert (ended.code, ended.out) == (1, "")
    assert "it closed the connection in the TLS handshake: check whether this port uses TLS" in ended.err


async def test_agents_and_brokers_are_queried_together(fleet: Fleet) -> None:
    async with whole_agents(("z", 0), clock=SystemClock(), name_servers=[fleet.name_server]) as (agent,):
        consumer = Consumer(agent.addr, "x@1")
        await consumer.beat(reads("billing", "orders"))
        document = await fleet.json(GRPC, "group", "billing")
        await consumer.crash()
    assert {each["addr"] for each in document["agents"]} == {agent.addr, fleet.a.addr, fleet.b.addr}
    first = document["members"][0]
    assert len(first["agents"]) == 3
    assert first["joinedAt"] is not None


# --- diff ---------------------------------------------------------------------------------------------------------


async def test_a_rocketmq_name_server_is_compared_with_ours_topic_by_topic(capsys: pytest.CaptureFixture[str]) -> None:
    wire = RemotingConfig(listen="127.0.0.1:0")
    async with (
        running_name_server(remoting=wire) as theirs,
        running_name_server(remoting=wire) as ours,
        remoting_peer(theirs.remoting_addr) as at_theirs,
        remoting_peer(ours.remoting_addr) as at_ours,
    ):
        upstream = f"rocketmq://{theirs.remoting_addr}"

        async def broker(peer: RemotingPeer, **topics: int) -> None:
            table = {name: topic_config(name, readQueueNums=queues) for name, queues in topics.items()}
            peer.send(register(broker_ext("broker-a", 0, "10.0.0.1:10911"), register_body(table)))
            assert (await peer.answer()).code == 0

        await broker(at_theirs, orders=8, payments=8)
        await broker(at_ours, orders=8, payments=8)
        equal = await ctl("diff", upstream, ours.addr)
        assert (equal.code, equal.out.splitlines()[-1]) == (0, f"2 topics at {upstream}, 2 at {ours.addr}: equal")

        await broker(at_ours, orders=4, payments=8, refunds=8)
        differ = await ctl("diff", upstream, ours.addr)
        assert differ.code == 1
        assert differ.out.splitlines()[1:] == [
            "orders   differs",
            f"refunds  only at {ours.addr}",
            f"2 topics at {upstream}, 3 at {ours.addr}: 2 differ",
            "orders",
            "~ queues of DefaultCluster/broker-a: read queues 8 -> 4",
        ]
        both = (await ctl("-o", "json", "diff", f"rocketmq://{ours.remoting_addr}", upstream)).document
        assert (both["differing"], both["onlyFirst"], both["settings"]) == (["orders"], ["refunds"], [])
        lines = ["~ queues of DefaultCluster/broker-a: read queues 4 -> 8"]
        assert both["routes"] == [{"topic": "orders", "differences": lines}]
        assert undocumented_keys(both, ["diff"], capsys=capsys) == set()


async def test_a_rocketmq_name_server_that_is_away_is_named() -> None:
    async with running_name_server() as ours, refused_addr() as away:
        ended = await ctl("diff", f"rocketmq://{away}", ours.addr)
    assert (ended.code, f"rocketmq://{away}" in ended.err) == (1, True)
