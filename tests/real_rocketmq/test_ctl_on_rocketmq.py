"""``pointsmanctl`` on real brokers, 5.5.0, 5.3.3 and 4.9.7, with a consumer of this client in the group."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.dev import make_certificates
from deploy.rocketmq.processes import RocketMQ, free_port
from pointsman_client import ConsumeFrom, Message, Producer, PushConsumer
from pointsman_client.rocketmq import RocketmqTransport
from pointsman_ctl.output.error_report import ACCESS_KEY_HINT
from tests.fixtures.mqadmin_commands.record import VERSION as MQADMIN
from tests.fixtures.mqadmin_commands.record import commands_of, recorded
from tests.kit.ctl.command import Ended, ctl
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import NameServer, Pointsman
from tests.real_rocketmq.test_client_transport import AUTHENTICATION, PLAIN_ACL

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(240)]

TOPIC, GROUP = "Bills", "billing"
SENT = 20


@dataclass
class Brokers:
    """One broker, registered at a name server of Pointsman and at one of RocketMQ."""

    grpc_addr: str
    name_servers: tuple[str, str]
    """The addresses of both."""
    mq: RocketMQ

    async def ctl(self, *arguments: str, name_server: str = "") -> Ended:
        return await ctl("--namesrv", name_server or self.grpc_addr, "--timeout", "20", *arguments)

    async def json(self, *arguments: str, name_server: str = "") -> Any:
        ended = await self.ctl("-o", "json", *arguments, name_server=name_server)
        assert (ended.code, ended.err) == (0, "")
        return json.loads(ended.out)

    async def queues(self, group: str, name_server: str) -> list[dict[str, Any]]:
        """Return the group's queues of TOPIC; none while the group has no members."""
        ended = await self.ctl("-o", "json", "group", group, "--queues", name_server=name_server)
        rows = json.loads(ended.out)["queues"] if ended.code == 0 else []
        return [row for row in rows if row["topic"] == TOPIC]


@pytest.fixture(scope="module", params=VERSIONS)
def brokers(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("ctl")
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
        yield Brokers(addr, (addr, f"rocketmq://{java.addr}"), mq)


async def test_groups_members_and_offsets_are_those_of_the_broker(brokers: Brokers) -> None:
    seen: list[str] = []
    consumer = PushConsumer(
        brokers.grpc_addr,
        group=GROUP,
        subscriptions={TOPIC: "A || B"},
        listener=lambda message: seen.append(message.body.decode()),
        transport=RocketmqTransport,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    async with Producer(brokers.grpc_addr, transport=RocketmqTransport) as producer:
        await asyncio.gather(*(producer.send(Message(TOPIC, b"%d" % each, tags="A")) for each in range(SENT)))
        async with consumer:
            await eventually(lambda: len(seen) >= SENT)
            for name_server in brokers.name_servers:
                groups = await brokers.json("groups", name_server=name_server)
                (row,) = groups["groups"]
                assert (row["group"], row["members"], row["messageModels"]) == (GROUP, 1, ["CLUSTERING"])
                assert TOPIC in row["topics"]
                assert groups["agents"][0]["brokers"] == ["C/a/0"]

                group = await brokers.json("group", GROUP, name_server=name_server)
                (member,) = group["members"]
                assert member["clientId"] == consumer.client_id
                assert member["client"].split()[0] not in {"", "JAVA"}
                assert {"topic": TOPIC, "expression": "A || B"} in member["subscriptions"]
                assert member["consumeTypes"] == ["PUSH"]
                assert member["joinedAt"] is None
                table = await brokers.ctl("group", GROUP, name_server=name_server)
                assert "CLIENT" in table.out
                assert consumer.client_id in table.out
                # 4.9 lists a topic from the first commit on, after 5 s, and a client responds 10 times per second.
                of_topic = await read_until(
                    partial(brokers.queues, GROUP, name_server),
                    lambda rows: {row["clientId"] for row in rows} == {consumer.client_id},
                )
                assert None not in {each["cachedMessages"] for each in of_topic}
        for name_server in brokers.name_servers:
            offsets = await brokers.json("offsets", GROUP, name_server=name_server)
            progress = [each for each in offsets["offsets"] if each["topic"] == TOPIC]
            assert sum(each["committedOffset"] for each in progress) == SENT
            assert sum(each["maxOffset"] for each in progress) == SENT
            assert {each["lag"] for each in progress} == {0}
            assert GROUP in {
                each["group"] for each in (await brokers.json("offsets", name_server=name_server))["totals"]
            }
        await asyncio.gather(*(producer.send(Message(TOPIC, b"late")) for _ in range(3)))

        async def is_behind() -> bool:
            return bool((await brokers.json("offsets", GROUP))["totals"][0]["lag"] == 3)

        await read_until(is_behind)


async def test_a_consumer_in_java_reports_its_queues_and_its_last_pull(brokers: Brokers) -> None:
    consumer = brokers.mq.consumer(TOPIC, group="java")
    try:
        for name_server in brokers.name_servers:
            found = await read_until(
                partial(brokers.queues, "java", name_server),
                lambda rows: {row["sinceLastPullSeconds"] is None for row in rows} == {False},
            )
            (member,) = (await brokers.json("group", "java", name_server=name_server))["members"]
            assert member["client"].startswith("JAVA ")
            assert {each["clientId"] for each in found} == {member["clientId"]}
            assert {each["cachedMessages"] for each in found} == {0}
            assert all(0 <= each["sinceLastPullSeconds"] < 60 for each in found)
    finally:
        await asyncio.to_thread(consumer.end)


async def test_a_group_without_members_is_not_found(brokers: Brokers) -> None:
    for name_server in brokers.name_servers:
        ended = await brokers.ctl("group", "absent", name_server=name_server)
        assert ended.code == 1
        assert "consumer group absent has no members" in ended.err


async def test_routes_topics_and_clusters_are_the_same_from_both_name_servers(brokers: Brokers) -> None:
    for command in (["route", TOPIC], ["topics"], ["clusters"]):
        grpc, remoting = [await brokers.ctl(*command, name_server=each) for each in brokers.name_servers]
        assert grpc.code == remoting.code == 0
        assert grpc.out == remoting.out


async def test_a_broker_reports_itself_as_mqadmin_shows(brokers: Brokers) -> None:
    addr = (await brokers.json("brokers"))["nodes"][0]["brokers"][0]["brokerAddr"]
    printed = await asyncio.to_thread(brokers.mq.admin, "brokerStatus", "-b", addr)
    shown = dict(re.findall(r"^(\S+) *: (.*?) *$", printed, re.MULTILINE))
    for name_server in brokers.name_servers:
        (agent,) = (await brokers.json("broker", "status", name_server=name_server))["agents"]
        table = await brokers.ctl("broker", "status", name_server=name_server)

        assert agent["runtime"].keys() == shown.keys()
        same = {"brokerVersionDesc", "bootTimestamp", "sendThreadPoolQueueCapacity"} & shown.keys()
        assert len(same) >= 3
        assert {name: agent["runtime"][name].strip() for name in same} == {name: shown[name] for name in same}
        (row,) = [line.split() for line in table.out.splitlines() if line.startswith("C/a/0")]
        assert row[1] == shown["brokerVersionDesc"].removeprefix("V").replace("_", ".")
        # A broker that has just started has no rates.
        assert re.fullmatch(r"\d+%", row[5])


async def test_locks_and_pins_need_agents(brokers: Brokers) -> None:
    for command in (["locks"], ["pin", GROUP, "--to", "x", "--for", "1h"]):
        grpc, remoting = [await brokers.ctl(*command, name_server=each) for each in brokers.name_servers]
        assert (grpc.code, remoting.code) == (1, 2)
        assert "no broker has an agent that can be queried: C/a/0" in grpc.err
        assert "requires a name server of Pointsman" in remoting.err


def test_the_commands_of_mqadmin_are_those_of_the_table(jars: Jars, tmp_path: Path) -> None:
    assert commands_of(jars.of(MQADMIN), tmp_path) == recorded(MQADMIN)


@pytest.mark.parametrize("version", VERSIONS)
async def test_brokers_that_require_tls_and_an_account(
    version: str, jars: Jars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = tmp_path / "certificates"
    make_certificates.main([str(certificates)])
    ca = str(certificates / "ca.pem")
    accounts = {name: tmp_path / name for name in ("right", "wrong")}
    for name, secret in (("right", "12345678ab"), ("wrong", "another-secret")):
        accounts[name].write_text(f"accessKey: RocketMQ12\nsecretKey: {secret}\n")
    (tmp_path / "tls.properties").write_text(
        "tls.test.mode.enable=false\ntls.client.authServer=false\n"
        f"tls.server.certPath={certificates}/server.pem\ntls.server.keyPath={certificates}/server.key\n"
    )
    settings = {"aclEnable": "true"} if version == "4.9.7" else AUTHENTICATION
    if version == "4.9.7":
        conf = tmp_path / "a-0" / "conf"
        conf.mkdir(parents=True)
        (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    java = NameServer(f"127.0.0.1:{free_port()}")
    mq = RocketMQ(jars.of(version), tmp_path, java.addr)
    mq.topics_on_disk("a", 0, [TOPIC])
    options = f"-Dtls.enable=true -Dtls.server.mode=enforcing -Dtls.config.file={tmp_path}/tls.properties"
    with ExitStack() as stack:
        with monkeypatch.context() as environment:
            environment.setenv("JAVA_TOOL_OPTIONS", options)
            stack.callback(mq.name_server(java.addr).end)
            stack.callback(mq.broker("a", 0, **settings).end)
        run = partial(Brokers("", ("", ""), mq).ctl, "--tls-ca", ca, name_server=f"rocketmq://{java.addr}")
        signed = [["--access-key-file", str(accounts[name])] for name in ("right", "wrong")]
        async with asyncio.timeout(120):
            # The broker registers before it serves.
            while (await run(*signed[0], "groups")).code:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        ended = await run(*signed[0], "offsets")
        assert (ended.code, ended.err) == (0, "")
        for command in (["send", TOPIC, "--body", "x", "--key", "4711", "--yes"], ["peek", TOPIC]):
            ended = await run(*signed[0], "messages", *command)
            assert ended.code == 0, ended.err
        async with asyncio.timeout(60):
            # The index is some milliseconds behind.
            while (await run(*signed[0], "messages", "find", TOPIC, "--key", "4711")).code:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        ended = await run(*signed[0], "producers", TOPIC)
        assert ended.code == 0, ended.err
        for account, reason in (([], "accessKey|username"), (signed[1], "signature")):
            find = ["messages", "find", TOPIC, "--key", "x"]
            for command in (["messages", "peek", TOPIC], find, ["producers", TOPIC]):
                ended = await run(*account, *command)
                assert (ended.code, ended.out) == (1, "")
                assert re.search(rf"({reason}).*; {ACCESS_KEY_HINT}\n$", ended.err), ended.err
            ended = await run(*account, "groups")
            assert (ended.code, ended.out) == (1, "")
            assert re.search(rf"rejected by .*({reason}).*; {ACCESS_KEY_HINT}\n$", ended.err)
        ended = await ctl("--namesrv", f"rocketmq://{java.addr}", "groups")
        assert (ended.code, ended.out) == (1, "")
        assert "it closed the connection before any response; if it requires TLS" in ended.err
