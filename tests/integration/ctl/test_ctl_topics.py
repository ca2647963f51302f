"""``pointsmanctl topic``: agents in this process, real Redis servers, and name servers with a history."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

from pointsman.daemon.access.access_settings import AccessSettings, Grant
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman_agent.config import (
    AgentConfig,
    BrokerSection,
    GroupsSection,
    HeartbeatSection,
    MonitoringSection,
    NameServersSection,
    OffsetsSection,
    ProbeSection,
    RpcSection,
    TopicRow,
    TopicsSection,
    load,
)
from pointsman_ctl.output.error_report import EXIT_FAILED, EXIT_TIMED_OUT
from pointsman_namesrv.app import NameServerApp
from tests.kit.access_tokens import TokenFolder
from tests.kit.agent.from_file import AgentFromFile, agent_from_file
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.ctl.command import Ended, ctl, running_ctl
from tests.kit.name_server.in_process import running_name_server
from tests.kit.waiting import eventually

pytestmark = pytest.mark.redis

QUICK = ("--yes", "--quiet", "1s")


@dataclass
class Fleet:
    """A name server, and brokers of cluster c1 with agents."""

    folder: Path
    name_server: NameServerApp
    stack: AsyncExitStack
    access: AccessSettings = field(default_factory=AccessSettings)
    redis: RedisProcess | None = None

    async def broker(
        self, name: str, *, broker_id: int = 0, source: str = "toml", writable: bool = True, **topics: int
    ) -> AgentFromFile:
        """Start the agent of a broker, a Redis server if there is one, and wait until it is registered."""
        rows = tuple(TopicRow(name=topic, read_queues=count, write_queues=count) for topic, count in topics.items())
        is_redis = self.redis is not None and broker_id == 0
        config = AgentConfig(
            broker=BrokerSection(
                cluster="c1",
                name=name,
                id=broker_id,
                addr=self.redis.addr
                if self.redis is not None and broker_id == 0
                else f"10.0.0.{ord(name)}:{1_000 + broker_id}",
            ),
            name_servers=NameServersSection(addrs=(self.name_server.addr,)),
            heartbeat=HeartbeatSection(interval_seconds=1.0, expiry_seconds=10.0),
            probe=ProbeSection(kind="redis", interval_seconds=0.2) if is_redis else ProbeSection(),
            topics=TopicsSection(
                source=source,
                check_interval_seconds=0.2,
                topic=rows,
                writable=writable and source == "toml",
            ),
            rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.0),
            groups=GroupsSection(warm_up_seconds=0.0),
            offsets=OffsetsSection(
                store="file", path=str(self.folder / f"{name}-{broker_id}.db"), flush_interval_seconds=0.1
            ),
            monitoring=MonitoringSection(listen="127.0.0.1:0"),
            access=self.access,
        )
        running = await self.stack.enter_async_context(
            agent_from_file(self.folder, config, name=f"{name}-{broker_id}.toml")
        )
        await eventually(lambda: running.agent.health()[0], seconds=20)
        return running

    async def ctl(self, *arguments: str, token_file: str = "") -> Ended:
        command = ("--namesrv", self.name_server.addr, "--timeout", "10", *arguments)
        return await ctl(*command, POINTSMAN_TOKEN_FILE=token_file)

    async def json(self, *arguments: str) -> Any:
        ended = await self.ctl("-o", "json", *arguments)
        assert ended.code == 0, ended
        return ended.document

    async def done(self, *arguments: str) -> Ended:
        ended = await self.ctl(*arguments)
        assert ended.code == 0, ended
        return ended

    async def settings(self, topic: str = "orders") -> list[tuple[int, int, str]]:
        """Read and write queues and permission at each broker."""
        found = (await self.json("topic", "status", topic))["brokers"]
        rows = [each["settings"] for each in found if each["settings"]]
        return [(row["readQueueNums"], row["writeQueueNums"], row["perm"]) for row in rows]

    async def add(self, queue: int, count: int, topic: str = "orders") -> None:
        """Add messages to a queue of the Redis server."""
        assert self.redis is not None
        async with Redis(host="127.0.0.1", port=self.redis.port, protocol=2) as client:
            for _ in range(count):
                await client.xadd(f"{topic}:queue:{queue}", {"body": "x"}, id="0-*")

    async def commit(self, agent: AgentFromFile, group: str, offsets: dict[int, int], topic: str = "orders") -> None:
        """Commit offsets of a group."""
        committed = [
            offsets_wire.QueueOffset(topic=topic, queue_id=queue, offset=end) for queue, end in offsets.items()
        ]
        async with grpc.aio.insecure_channel(agent.addr) as channel:
            stub: Any = OffsetServiceStub(channel)
            await stub.CommitOffsets(offsets_wire.CommitOffsetsRequest(group=group, offsets=committed))


@asynccontextmanager
async def opened(folder: Path, *, access: AccessSettings | None = None) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_name_server(history=folder / "history", access=access))
        yield Fleet(folder, server, stack, access or AccessSettings())


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with opened(tmp_path) as running:
        yield running


@pytest.fixture
async def on_redis(fleet: Fleet, tmp_path: Path) -> AsyncIterator[Fleet]:
    """The fleet, whose broker is a Redis server."""
    async with redis_process(tmp_path / "redis") as redis:
        fleet.redis = redis
        yield fleet


async def test_the_plan_names_queues_keys_and_groups_and_changes_nothing(on_redis: Fleet) -> None:
    fleet = on_redis
    agent = await fleet.broker("a", orders=4)
    client = Consumer(agent.addr, "10.0.0.1@1", reads("billing", "orders"))
    await client.beat()
    try:
        document = await fleet.json("topic", "alter", "orders", "--queues", "8", "--dry-run")
    finally:
        await client.crash()
    plan = document["plan"]
    (broker,) = plan["brokers"]
    assert broker["before"] == {"readQueueNums": 4, "writeQueueNums": 4, "perm": "rw"}
    assert broker["after"] == {"readQueueNums": 8, "writeQueueNums": 8, "perm": "rw"}
    assert (broker["queuesAdded"], broker["queuesGoing"]) == (4, [])
    assert plan["keyMoves"]["movedKeys"] == {"hashRing": 0.5, "modulo": 0.5}
    assert plan["groups"] == [{"group": "billing", "members": 1}]
    assert (document["dryRun"], document["servers"], document["recorded"]) == (True, [], [])
    assert await fleet.settings() == [(4, 4, "rw")]


async def test_a_change_is_recorded_with_what_was_and_how_to_undo_it(fleet: Fleet) -> None:
    await fleet.broker("a", orders=4)
    changed = await fleet.json("topic", "alter", "orders", "--queues", "8", "--yes", "--by", "ann")
    assert [each["inHistory"] for each in changed["recorded"]] == [True]
    (server,) = changed["servers"]
    assert (server["changed"], server["broker"]) == (True, "c1/a")
    recorded = (await fleet.done("changes")).out
    assert "give topic orders 8 queues" in recorded
    assert "ann" in recorded
    again = await fleet.json("topic", "alter", "orders", "--queues", "8", "--yes")
    assert (again["recorded"], again["servers"]) == ([], [])


async def test_the_files_of_a_master_and_its_replica_change_together(fleet: Fleet) -> None:
    agents = [await fleet.broker("a", broker_id=each, orders=4) for each in (0, 1)]
    await fleet.done("topic", "alter", "orders", "--queues", "6", "--yes")
    await fleet.done("topic", "perm", "orders", "r", "--yes")
    for agent in agents:
        (row,) = load(agent.file, {}).topics.topic
        assert (row.read_queues, row.write_queues, row.perm) == (6, 6, "r")


async def test_a_replica_stays_readable_as_long_as_its_master(on_redis: Fleet) -> None:
    """Promoted in between, it must serve what groups have not read."""
    fleet = on_redis
    master, replica = [await fleet.broker("a", broker_id=each, orders=4) for each in (0, 1)]
    client = Consumer(master.addr, "10.0.0.1@1", reads("billing", "orders"))
    await client.beat()
    await fleet.add(3, 5)
    shrink = ("topic", "alter", "orders", "--queues", "2", *QUICK)
    # Longer than the queues must be quiet.
    assert (await fleet.ctl(*shrink, "--wait", "3s")).code == EXIT_TIMED_OUT
    (row,) = load(replica.file, {}).topics.topic
    assert (row.read_queues, row.write_queues) == (4, 2)
    await fleet.commit(master, "billing", {3: 5})
    await fleet.done(*shrink)
    await client.crash()
    assert [load(each.file, {}).topics.topic[0].read_queues for each in (master, replica)] == [2, 2]


async def test_an_agent_whose_file_may_not_be_written_gets_nothing_and_the_block_is_printed(fleet: Fleet) -> None:
    await fleet.broker("a", orders=4)
    await fleet.broker("b", writable=False, orders=4)
    ended = await fleet.ctl("topic", "alter", "orders", "--queues", "8", "--yes")
    assert ended.code == EXIT_FAILED
    assert "nothing was changed" in ended.err
    assert "c1/b: topics.writable is not set at its agent" in ended.err
    assert '[[topics.topic]] | name = "orders" | read_queues = 8 | write_queues = 8' in ended.err
    assert await fleet.settings() == [(4, 4, "rw"), (4, 4, "rw")]
    await fleet.done("topic", "alter", "orders", "--queues", "8", "--broker", "a", "--yes")
    assert sorted(await fleet.settings()) == [(4, 4, "rw"), (8, 8, "rw")]


async def test_a_topic_is_created_once_and_another_one_of_its_name_is_refused(fleet: Fleet) -> None:
    await fleet.broker("a", other=1)
    await fleet.broker("b", other=1)
    await fleet.done("topic", "create", "orders", "--queues", "4", "--broker", "a", "--yes")
    # Interrupted after the first broker: the same command finishes it.
    await fleet.done("topic", "create", "orders", "--queues", "4", "--yes")
    assert await fleet.settings() == [(4, 4, "rw"), (4, 4, "rw")]
    refused = await fleet.ctl("topic", "create", "orders", "--queues", "8", "--yes")
    assert (refused.code, "exists at c1/a with 4 queues, rw" in refused.err) == (EXIT_FAILED, True)


async def test_queues_that_go_are_read_first_and_an_interrupted_command_is_finished_by_the_same(
    on_redis: Fleet,
) -> None:
    fleet = on_redis
    agent = await fleet.broker("a", orders=4)
    client = Consumer(agent.addr, "10.0.0.1@1", reads("billing", "orders"))
    await client.beat()
    await fleet.add(3, 5)
    await fleet.commit(agent, "billing", {3: 2})
    left = await fleet.done("topic", "alter", "orders", "--queues", "2", "--no-wait", "--yes")
    assert "queues 2 to 3 stay readable: run the same command again to finish" in left.out
    assert await fleet.settings() == [(4, 2, "rw")]
    again = ("topic", "alter", "orders", "--queues", "2", *QUICK)
    timed_out = await fleet.ctl(*again, "--wait", "1s")
    assert timed_out.code == EXIT_TIMED_OUT
    assert "waiting for billing at c1/a: has not committed 3 messages" in timed_out.err
    assert await fleet.settings() == [(4, 2, "rw")]
    async with running_ctl("--namesrv", fleet.name_server.addr, *again) as command:
        await eventually(lambda: "has not committed 3 messages" in command.err.getvalue())
        await fleet.commit(agent, "billing", {3: 5})
        ended = await command.ended()
    await client.crash()
    assert ended.code == 0, ended
    assert await fleet.settings() == [(2, 2, "rw")]


async def test_groups_that_cannot_be_waited_for_are_named_and_need_force(on_redis: Fleet) -> None:
    fleet = on_redis
    agent = await fleet.broker("a", orders=4)
    await fleet.add(3, 5)
    await fleet.commit(agent, "gone", {3: 4})
    everywhere = reads("screens", model=groups_wire.MESSAGE_MODEL_BROADCASTING)
    client = Consumer(agent.addr, "10.0.0.1@1", everywhere)
    await client.beat()
    shrink = ("topic", "alter", "orders", "--queues", "3", *QUICK)
    refused = await fleet.ctl(*shrink)
    assert refused.code == EXIT_FAILED
    assert "gone at c1/a: has not committed 1 message, and has no member" in refused.err
    assert "screens at c1/a: broadcasting" in refused.err
    assert await fleet.settings() == [(4, 4, "rw")]
    await fleet.done(*shrink, "--force")
    await client.crash()
    assert await fleet.settings() == [(3, 3, "rw")]


async def test_a_broker_that_does_not_report_ends_needs_force_to_shrink(fleet: Fleet) -> None:
    await fleet.broker("a", orders=4)
    refused = await fleet.ctl("topic", "alter", "orders", "--queues", "2", *QUICK)
    assert (refused.code, "is not known at c1/a" in refused.err) == (EXIT_FAILED, True)
    await fleet.done("topic", "alter", "orders", "--queues", "2", *QUICK, "--force")
    assert await fleet.settings() == [(2, 2, "rw")]


async def test_messages_are_deleted_only_when_asked_for_and_their_number_is_shown(on_redis: Fleet) -> None:
    fleet = on_redis
    await fleet.broker("a", source="redis")
    await fleet.done("topic", "create", "orders", "--queues", "4", "--yes")
    await fleet.add(3, 5)
    await fleet.done("topic", "alter", "orders", "--queues", "2", *QUICK)
    (broker,) = (await fleet.json("topic", "status", "orders"))["brokers"]
    last = broker["queues"][3]
    assert (last["status"], last["messages"]) == ("UNUSED", 5)
    plan = (await fleet.json("topic", "alter", "orders", "--queues", "2", "--delete-messages", "--dry-run"))["plan"]
    assert plan["unusedMessages"] == 5
    deleted = await fleet.done("topic", "alter", "orders", "--queues", "2", "--delete-messages", *QUICK)
    assert "2 queues with 5 messages removed" in deleted.out
    (broker,) = (await fleet.json("topic", "status", "orders"))["brokers"]
    assert [each["queueId"] for each in broker["queues"]] == [0, 1]


async def test_a_deleted_topic_leaves_the_brokers_then_the_name_servers(on_redis: Fleet) -> None:
    fleet = on_redis
    await fleet.broker("a", source="redis")
    await fleet.done("topic", "create", "orders", "--queues", "2", "--yes")
    await fleet.add(0, 3)
    deleted = await fleet.json("topic", "delete", "orders", "--delete-messages", *QUICK)
    assert [each["changed"] for each in deleted["servers"]] == [True, False]
    assert deleted["servers"][0]["note"] == "2 queues with 3 messages removed"
    assert deleted["servers"][1]["addr"] == fleet.name_server.addr
    assert "orders" not in (await fleet.done("topics")).out.split()
    missing = await fleet.ctl("topic", "delete", "orders", "--yes")
    assert (missing.code, "no broker has topic orders" in missing.err) == (EXIT_FAILED, True)


async def test_a_topic_that_another_broker_keeps_stays_at_the_name_servers(fleet: Fleet) -> None:
    await fleet.broker("a", orders=2)
    await fleet.broker("b", orders=2)
    deleted = await fleet.done("--timeout", "1", "topic", "delete", "orders", "--broker", "a", "--yes")
    assert "is held by c1/b: it stays" in deleted.out
    assert await fleet.settings() == [(2, 2, "rw")]


async def test_status_measures_what_arrives(on_redis: Fleet) -> None:
    fleet = on_redis
    await fleet.broker("a", orders=2)

    is_over = False

    async def write() -> None:
        while not is_over:
            await fleet.add(1, 1)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        try:
            (broker,) = (await fleet.json("topic", "status", "orders"))["brokers"]
        finally:
            is_over = True
    still, busy = broker["queues"]
    assert (still["putRate"], still["maxOffset"], still["lastWriteAt"]) == (0.0, 0, None)
    assert busy["putRate"] > 1
    assert busy["minOffset"] == 0
    table = (await fleet.done("topic", "status", "orders")).out
    assert "c1/a: 2 queues, rw" in table
    assert "IN/S" in table


async def test_nothing_changes_while_a_broker_does_not_respond(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.broker("a", orders=4)
    async with AsyncExitStack() as stack:
        other = replace(fleet, stack=stack)
        await other.broker("b", orders=4)
    # Its agent stopped, and handed its registration over.
    ended = await fleet.ctl("--timeout", "1", "topic", "alter", "orders", "--queues", "8", "--yes")
    assert ended.code == EXIT_FAILED
    assert "nothing was changed: 1 broker not counted: c1/b" in ended.err
    assert load(tmp_path / "a-0.toml", {}).topics.topic[0].read_queues == 4
    await fleet.done("topic", "alter", "orders", "--queues", "8", "--broker", "a", "--yes")


async def test_an_agent_of_rocketmq_files_names_what_to_use(fleet: Fleet, tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(
        '{"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1}, "topicConfigTable": {"orders": {"order":'
        ' false, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": "orders",'
        ' "topicSysFlag": 0, "writeQueueNums": 4}}}'
    )
    text = f"""
        [broker]
        cluster = "c1"
        name = "a"
        addr = "10.0.0.1:10911"
        [name_servers]
        addrs = ["{fleet.name_server.addr}"]
        [topics]
        source = "rocketmq"
        store_path = "{tmp_path / "store"}"
        [rpc]
        listen = "127.0.0.1:0"
        [offsets]
        path = "{tmp_path / "offsets.db"}"
        [monitoring]
        listen = "127.0.0.1:0"
    """
    async with agent_from_file(tmp_path, AgentConfig, text=text) as running:  # type: ignore[arg-type]  # the text is used
        await eventually(lambda: running.agent.health()[0])
        ended = await fleet.ctl("topic", "perm", "orders", "r", "--yes")
    assert (ended.code, "with mqadmin updateTopic" in ended.err) == (EXIT_FAILED, True), ended


async def test_admins_change_topics_and_viewers_see_the_plan(tmp_path: Path) -> None:
    tokens = TokenFolder(tmp_path, "ops", "eye", "app", "billing", "node")
    access = tokens.settings(
        Grant("admin", "ops"),
        Grant("viewer", "eye"),
        Grant("client", "app"),
        Grant("client", "billing", group="billing*"),
        Grant("broker", "node", cluster="c1", broker_name="*"),
    )
    files = {name: tmp_path / f"token-{name}" for name in tokens.tokens}
    for name, file in files.items():
        file.write_text(tokens.tokens[name])
        file.chmod(0o600)
    async with opened(tmp_path) as fleet:
        fleet.access = access
        await fleet.broker("a", orders=4)
        alter = ("topic", "alter", "orders", "--queues", "8")
        codes: dict[str, tuple[int | None, int | None]] = {}
        for name in ("eye", "app", "billing", "node", "ops"):
            planned = await fleet.ctl(*alter, "--dry-run", token_file=str(files[name]))
            changed = await fleet.ctl(*alter, "--yes", token_file=str(files[name]))
            codes[name] = planned.code, changed.code
            assert changed.code == 0 or re.search("may not use all groups|needs", changed.err), changed
        assert codes == {"eye": (0, 1), "app": (0, 1), "billing": (1, 1), "node": (1, 1), "ops": (0, 0)}
