"""What operators see of faults of groups and queues, and after how long: commands, the name server's JSON, Prometheus.

All programs are processes, with measurements twice a second. ``pytest --capture=no`` prints the times at the end.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, start_http_server

from pointsman.names import split_addr
from pointsman_client import ConsumeFrom, ConsumeResult, Message, Producer, PushConsumer, ReceivedMessage
from pointsman_client.prometheus import PrometheusMetrics
from pointsman_client.redis_streams import RedisStreamsTransport
from tests.kit.agent.process import agent_process
from tests.kit.broker.redis.process import free_port, redis_process
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, agent_config
from tests.kit.ctl.command import ctl
from tests.kit.http_answer import ask
from tests.kit.name_server.process import RealNameServer, real_name_server
from tests.kit.operations.prometheus_process import Prometheus, prometheus
from tests.kit.waiting import eventually, read_until, running
from tests.leaks import nothing_left

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="module")]

TOPICS = {
    "broker-a": {"clicks": 4, "refunds": 2, "payments": 2, "mails": 2, "invoices": 2, "images": 1},
    "broker-b": {"clicks": 4, "orders": 1},
    "broker-c": {"orders": 1},
}
BACKLOG = 1_500
"""More than PointsmanGroupLagGrows asks for, and than arrives in a minute."""
PATIENCE_SECONDS = 60.0
HEARTBEAT_PATIENCE_SECONDS = 300.0
"""What members report comes with a heartbeat, every 30 s; a listener call is stuck after 60 s."""

Look = Callable[[], Awaitable[str]]
"""Returns what a source says of the fault; empty: nothing yet."""


@dataclass
class Fleet:
    """A name server, three brokers, a Prometheus and a producer."""

    server: RealNameServer
    brokers: dict[str, RedisBroker]
    monitor: Prometheus
    producer: Producer
    metrics: PrometheusMetrics
    table: list[tuple[str, float, str, str]] = field(default_factory=list)
    """Fault, seconds, source, text."""

    def command(self, words: str, *parts: str) -> Look:
        """Wait for a line of a command with all these parts."""

        async def look() -> str:
            made = await ctl("--namesrv", self.server.addr, "--timeout", "2", *words.split(), COLUMNS="250")
            return line_with(parts, f"{made.out}\n{made.err}")

        return look

    def finding(self, path: str, kind: str, **labels: str) -> Look:
        """Wait for a finding of a topic or group in ``/v1/queues`` or ``/v1/groups``."""

        async def look() -> str:
            (node,) = (await self.document(path))["nodes"]
            for each in node.get("topics", []) + node["groups"]:
                if labels.items() <= each.items():
                    for finding in each["findings"]:
                        if finding["kind"] == kind:
                            return f"{finding['text']}. {finding['remedy']}"
            return ""

        return look

    def alert(self, name: str, **labels: str) -> Look:
        """Wait for an alert that fires."""

        async def look() -> str:
            found = await self.monitor.firing(name)
            return next((f"{name}: {each['summary']}" for each in found if labels.items() <= each.items()), "")

        return look

    async def document(self, path: str) -> Any:
        return (await ask(split_addr(self.server.monitoring_addr)[1], path)).document

    async def is_seen(
        self, fault: str, sources: dict[str, Look], *, since: float, patience: float = PATIENCE_SECONDS
    ) -> dict[str, str]:
        """Return what each source says of it first; fails with those that say nothing."""
        said: dict[str, str] = {}

        async def wait(source: str, look: Look) -> None:
            text = await read_until(look, seconds=patience)
            said[source] = text
            self.table.append((fault, time.monotonic() - since, source, text))

        tasks = [asyncio.create_task(wait(*each)) for each in sources.items()]
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        late = sorted(sources.keys() - said.keys())
        assert not late, f"nothing of {fault!r} in {late}: {[each for each in ended if each]}; others say {said}"
        return said

    async def sends(self, topic: str, *, per_second: float, key: str = "") -> None:
        """Send for ever."""
        for number in itertools.count():
            message = Message(topic, b"%d" % number, keys=(key,) if key else ())
            await (self.producer.send_by_key(message, key) if key else self.producer.send(message))
            await asyncio.sleep(1 / per_second)

    async def backlog(self, topic: str, count: int) -> None:
        """Send many together, over connections that are closed again."""
        async with Producer(self.server.addr, transport=RedisStreamsTransport) as producer:
            await asyncio.gather(*(producer.send(Message(topic, b"backlog")) for _ in range(count)))

    def consumer(self, group: str, topic: str, listener: Any, **options: Any) -> PushConsumer:
        return PushConsumer(
            self.server.addr,
            group=group,
            subscriptions=[topic],
            listener=listener,
            transport=RedisStreamsTransport,
            metrics_hook=self.metrics,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            persist_offset_interval_seconds=1.0,
            close_timeout_seconds=2.0,
            **options,
        )


def line_with(parts: tuple[str, ...], text: str) -> str:
    """Return the first line with all parts, with single spaces; empty if there is none."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return next((line for line in lines if all(part in line for part in parts)), "")


@dataclass(frozen=True)
class Hung:
    """A consumer whose listener does not end, from the start of the fleet on, since it is stuck after a minute only."""

    client_id: str
    since: float


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """Sockets may stay: clients of the fleet, which all tests share, connect again during a test."""
    with nothing_left(but="socket"):
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            real_name_server(folder / "ns", settings={"liveness.stream_grace_seconds": 1.0})
        )
        brokers: dict[str, RedisBroker] = {}
        targets = {"pointsman-namesrv": server.monitoring_addr, "clients": f"127.0.0.1:{free_port()}"}
        for name, topics in TOPICS.items():
            redis = await stack.enter_async_context(redis_process(folder / name / "redis"))
            config = agent_config(BrokerPlan(name, topics), redis.addr, [server.addr])
            targets[f"pointsman-agent-{name}"] = f"127.0.0.1:{free_port()}"
            config = replace(
                config,
                monitoring=replace(config.monitoring, listen=targets[f"pointsman-agent-{name}"]),
                queue_stats=replace(config.queue_stats, live_interval_seconds=0.5),
            )
            agent = await stack.enter_async_context(agent_process(folder / name / "agent", config))
            brokers[name] = RedisBroker(redis, agent)
        served, thread = start_http_server(split_addr(targets["clients"])[1], "127.0.0.1", registry)
        stack.callback(thread.join)
        stack.callback(served.server_close)
        stack.callback(served.shutdown)
        monitor = await stack.enter_async_context(prometheus(folder, targets))
        producer = await stack.enter_async_context(Producer(server.addr, transport=RedisStreamsTransport))
        for broker in brokers.values():
            await broker.agent.beats(1, patience=PATIENCE_SECONDS)
        made = Fleet(server, brokers, monitor, producer, PrometheusMetrics(registry))
        for topic in {topic for topics in TOPICS.values() for topic in topics}:
            for _ in range(4):  # so that the producer is connected to each broker
                await producer.send(Message(topic, b"first"))
        await monitor.await_series("up == 1", len(targets))
        yield made
        for fault, seconds, source, text in made.table:
            print(f"\n{fault:28} {seconds:5.1f} s  {source:32} {text}", end="")


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def hung(fleet: Fleet) -> AsyncIterator[Hung]:
    called, end = asyncio.Event(), asyncio.Event()

    async def hangs(_: ReceivedMessage) -> None:
        called.set()
        await end.wait()

    async with fleet.consumer("thumbnails", "images", hangs) as consumer:
        await asyncio.wait_for(called.wait(), PATIENCE_SECONDS)
        yield Hung(consumer.client_id, time.monotonic())
        end.set()


async def test_a_hot_key_is_named_with_its_queue_and_how_to_spread_it(fleet: Fleet) -> None:
    since = time.monotonic()
    async with running(fleet.sends("clicks", per_second=20, key="largest")):
        said = await fleet.is_seen(
            "hot key",
            {
                "pointsmanctl queues --hot": fleet.command("queues --hot", "KEY SKEW:", "topic clicks"),
                "/v1/queues": fleet.finding("/v1/queues", "key_skew", topic="clicks"),
                "Prometheus": fleet.alert("PointsmanQueueHot", topic="clicks"),
            },
            since=since,
        )
    assert "times the mean of the 8 queues" in said["pointsmanctl queues --hot"]
    assert "send_by_key with sharding=SubShards" in said["/v1/queues"]


async def test_a_group_whose_last_member_left_is_named_with_its_lag(fleet: Fleet) -> None:
    read = list[int]()

    async def listener(message: ReceivedMessage) -> None:
        read.append(message.queue_offset)

    async with fleet.consumer("refunds-app", "refunds", listener):
        await eventually(lambda: len(read) >= 4, seconds=PATIENCE_SECONDS)
    since = time.monotonic()
    for _ in range(10):
        await fleet.producer.send(Message("refunds", b"unread"))
    await fleet.is_seen(
        "group without members",
        {
            "pointsmanctl groups": fleet.command("groups", "refunds-app", " 10 ", "NO MEMBERS"),
            "pointsmanctl group": fleet.command("group refunds-app", "has no members and 10 unread messages"),
            "pointsmanctl queues --hot": fleet.command("queues --hot", "NO MEMBERS:", "refunds-app", "10 messages"),
            "/v1/groups": fleet.finding("/v1/groups", "no_members", group="refunds-app"),
            "Prometheus": fleet.alert("PointsmanGroupWithoutMembers", group="refunds-app"),
        },
        since=since,
    )


@pytest.mark.slow
async def test_a_poison_message_is_counted_as_retried_and_as_dead_letter(fleet: Fleet) -> None:
    async def fails(message: ReceivedMessage) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER if message.body == b"poison" else ConsumeResult.SUCCESS

    async with fleet.consumer("payments-app", "payments", fails, max_reconsume_times=1):
        since = time.monotonic()
        await fleet.producer.send(Message("payments", b"poison"))

        async def counted(name: str) -> str:
            made = await ctl("--namesrv", fleet.server.addr, "-o", "json", "group", "payments-app")
            members = made.document.get("members", [])
            return next((f"{name}: {each[name]}" for each in members if each[name]), "")

        said = await fleet.is_seen(
            "poison message",
            {
                "pointsmanctl group: retries": lambda: counted("retries"),
                "pointsmanctl group: dead letters": lambda: counted("deadLetters"),
                "pointsmanctl queues": fleet.command("queues --limit 100", "%DLQ%payments-app"),
                "Prometheus": fleet.alert("PointsmanDeadLetters", group="payments-app"),
            },
            since=since,
            patience=HEARTBEAT_PATIENCE_SECONDS,
        )
    assert said["pointsmanctl group: dead letters"] == "deadLetters: 1"


@pytest.mark.slow
async def test_a_hung_listener_is_named_with_its_member_and_queue(fleet: Fleet, hung: Hung) -> None:
    said = await fleet.is_seen(
        "hung listener",
        {
            "pointsmanctl groups": fleet.command("groups", "thumbnails", "STUCK"),
            "pointsmanctl group": fleet.command("group thumbnails", "STUCK: ", "a listener call has run for"),
            "pointsmanctl queues --hot": fleet.command("queues --hot", "STUCK:", "thumbnails"),
            "/v1/groups": fleet.finding("/v1/groups", "stuck", group="thumbnails"),
            "Prometheus": fleet.alert("PointsmanQueueStuck", group="thumbnails", client_id=hung.client_id),
        },
        since=hung.since,
        patience=HEARTBEAT_PATIENCE_SECONDS,
    )
    assert hung.client_id in said["pointsmanctl group"]


@pytest.mark.slow
async def test_a_slow_listener_falls_behind(fleet: Fleet) -> None:
    async def slow(_: ReceivedMessage) -> None:
        await asyncio.sleep(1.0)

    await fleet.backlog("invoices", BACKLOG)
    async with fleet.consumer("archive", "invoices", slow, consume_concurrency=1) as consumer:
        since = time.monotonic()
        async with running(fleet.sends("invoices", per_second=8)):
            await fleet.is_seen(
                "slow listener",
                {
                    "pointsmanctl groups": fleet.command("groups", "archive", "BEHIND"),
                    "pointsmanctl group --queues": fleet.command(
                        "group archive --queues", "invoices c1/", consumer.client_id, "BEHIND"
                    ),
                    "pointsmanctl queues --hot": fleet.command("queues --hot", "FALLING BEHIND:", "archive"),
                    "/v1/groups": fleet.finding("/v1/groups", "falling_behind", group="archive"),
                    "Prometheus": fleet.alert("PointsmanGroupLagGrows", group="archive", topic="invoices"),
                },
                since=since,
                patience=HEARTBEAT_PATIENCE_SECONDS,
            )


@pytest.mark.slow
async def test_members_that_come_and_go_are_a_rebalance_storm(fleet: Fleet) -> None:
    async def listener(_: ReceivedMessage) -> None:
        pass

    await fleet.backlog("mails", 10)  # an agent reports groups that have committed
    enough = asyncio.Event()

    async def come_and_go() -> None:
        while not enough.is_set():
            async with fleet.consumer("mailer", "mails", listener):
                await asyncio.sleep(0.8)
            await asyncio.sleep(0.8)

    async with fleet.consumer("mailer", "mails", listener) as steady:

        async def counted() -> str:
            made = await ctl("--namesrv", fleet.server.addr, "-o", "json", "group", "mailer")
            for each in made.document.get("members", []):
                if each["clientId"] == steady.client_id and (each["rebalances"] or {}).get("members", 0) > 5:
                    return f"rebalances: {each['rebalances']}"
            return ""

        since = time.monotonic()
        members = asyncio.create_task(come_and_go())
        try:
            await fleet.is_seen(
                "rebalance storm",
                {
                    "pointsmanctl group": counted,
                    "/v1/groups": fleet.finding("/v1/groups", "rebalance_storm", group="mailer"),
                    "Prometheus": fleet.alert("PointsmanRebalanceStorm", group="mailer"),
                },
                since=since,
                patience=HEARTBEAT_PATIENCE_SECONDS,
            )
        finally:
            enough.set()
            await members


@pytest.mark.slow
async def test_a_broker_that_is_killed_with_a_backlog_is_named_by_each_list_of_groups(fleet: Fleet) -> None:
    async def slow(_: ReceivedMessage) -> None:
        await asyncio.sleep(1.0)

    await fleet.backlog("orders", 200)
    async with fleet.consumer("billing", "orders", slow, consume_concurrency=1):

        async def lag() -> int:
            (node,) = (await fleet.document("/v1/groups"))["nodes"]
            return sum(int(each["lag"]) for each in node["groups"] if each["group"] == "billing")

        await read_until(lag, lambda unread: unread > 150, seconds=PATIENCE_SECONDS)
        broker = fleet.brokers["broker-c"]
        since = time.monotonic()
        broker.redis.kill()
        await broker.agent.kill()

        async def problem() -> str:
            problems = (await fleet.document("/v1/status"))["problems"]
            return next(
                (each["text"] for each in problems if "broker-c" in each["text"] and "departed" in each["text"]), ""
            )

        async def missing() -> str:
            (node,) = (await fleet.document("/v1/groups"))["nodes"]
            found: dict[str, Any] = next((each for each in node["brokers"] if each["brokerName"] == "broker-c"), {})
            return f"broker-c: {found['problem']}" if found.get("problem") else ""

        await fleet.is_seen(
            "killed broker with backlog",
            {
                "pointsmanctl groups": fleet.command("groups", "broker-c", "GONE"),
                "pointsmanctl group --queues": fleet.command("group billing --queues", "broker-c", "GONE"),
                "pointsmanctl why": fleet.command("why broker-c", "EXPIRED"),
                "/v1/status": problem,
                "/v1/groups": missing,
                "Prometheus: agent": fleet.alert("PointsmanAgentDown", job="pointsman-agent-broker-c"),
                "Prometheus: broker": fleet.alert("PointsmanBrokersLost"),
            },
            since=since,
        )
