"""A fleet under load is upgraded part by part in the documented order, and rolled back in the reverse one.

Two name servers, two Redis brokers with agents, two producers and two consumers of one group, each a process. At every
step a part of one version runs beside parts of the other, and commands of both query it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.released import HERE, INSTALL_SECONDS, Installed
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.daemon_process import DaemonProcess
from tests.kit.name_server.process import RealNameServer
from tests.kit.waiting import eventually, read_until

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(INSTALL_SECONDS + 600)]

BROKERS = ("broker-a", "broker-b")
QUEUES = 4
MESSAGES = 40
"""What each producer sends, and the group consumes, after every step."""
PATIENCE_SECONDS = 90.0
AGENT = """
[broker]
cluster = "c1"
name = "{name}"
addr = "{addr}"

[name_servers]
addrs = {name_servers}

[heartbeat]
interval_seconds = 1.0
expiry_seconds = 30.0

[probe]
kind = "redis"

[rpc]
listen = "127.0.0.1:{port}"

[groups]
warm_up_seconds = 2.0

[monitoring]
listen = "127.0.0.1:0"

[[topics.topic]]
name = "orders"
read_queues = {queues}
write_queues = {queues}
"""


class Agent(DaemonProcess):
    """The agent of one broker."""

    command = "pointsman-agent"


class Worker(DaemonProcess):
    """A producer or a consumer."""

    command = "python"

    def __init__(self, folder: Path, work: str, name: str, name_servers: Sequence[str]) -> None:
        self.lines_file = folder / f"{name}.lines"
        servers = [word for addr in name_servers for word in ("--name-server", addr)]
        script = [str(HERE / "fleet_worker.py"), work, "--name", name, "--log", str(self.lines_file)]
        super().__init__(folder / name, *script, *servers)

    def lines(self, kind: str) -> list[str]:
        """What follows this word in complete lines."""
        text = self.lines_file.read_text(encoding="utf-8") if self.lines_file.exists() else ""
        complete = text[: text.rfind("\n") + 1].splitlines()
        return [line.removeprefix(f"{kind} ") for line in complete if line.startswith(f"{kind} ")]


class Fleet:
    """All parts; each runs one of the versions."""

    def __init__(self, servers: list[RealNameServer], agents: list[Agent], folder: Path) -> None:
        self.servers, self.agents = servers, agents
        self.addrs = [server.addr for server in servers]
        self.producers = [Worker(folder, "produce", f"producer-{number}", self.addrs) for number in range(2)]
        self.consumers = [Worker(folder, "consume", f"consumer-{number}", self.addrs) for number in range(2)]

    def sent(self) -> set[str]:
        return {body for each in self.producers for body in each.lines("sent")}

    def times_consumed(self) -> Counter[str]:
        return Counter(body for each in self.consumers for body in each.lines("consumed"))

    def consumed(self) -> set[str]:
        return set(self.times_consumed())

    async def flows(self) -> None:
        """Wait until each producer has sent, and the group consumed, messages that were not sent before."""
        before, sent_before = self.sent(), [len(each.lines("sent")) for each in self.producers]
        await eventually(
            lambda: all(
                len(each.lines("sent")) >= count + MESSAGES
                for each, count in zip(self.producers, sent_before, strict=True)
            ),
            seconds=PATIENCE_SECONDS,
            what="each producer to send",
        )
        wanted = self.sent() - before
        await eventually(lambda: wanted <= self.consumed(), seconds=PATIENCE_SECONDS, what="the group to consume")

    async def is_whole(self, ctl: Installed) -> None:
        """Wait until every name server has both brokers up."""
        wanted = [[(name, "UP") for name in BROKERS]] * len(self.servers)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                done = await self.ctl(ctl, "--namesrv", ",".join(self.addrs), "brokers")
                if done.returncode == 0 and states(json.loads(done.stdout)) == wanted:
                    return

    async def agrees(self, ctl: Installed) -> None:
        """Wait until the name servers have the same routes and settings, by the command that compares them."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.ctl(ctl, "diff", *self.addrs)).returncode != 0:
                pass

    async def ctl(self, installed: Installed, *command: str) -> subprocess.CompletedProcess[str]:
        """Run pointsmanctl of a version."""
        done = await asyncio.to_thread(installed.run, "pointsmanctl", "--output", "json", *command)
        assert done.returncode in {0, 1}, done.stderr
        return done

    async def versions(self, ctl: Installed) -> list[str]:
        """Of each name server."""
        done = await self.ctl(ctl, "--namesrv", ",".join(self.addrs), "info")
        return [node["version"] for node in json.loads(done.stdout)["nodes"]]


def states(brokers: Any) -> list[list[tuple[str, str]]]:
    """By name server: each broker with its state."""
    return [sorted((each["brokerName"], each["state"]) for each in node["brokers"]) for node in brokers["nodes"]]


async def replace(part: DaemonProcess, installed: Installed) -> None:
    """Stop it in order, and start it with another version."""
    assert await part.stop() == 0
    part.install(installed.bin, installed.environment)
    await part.start()


@asynccontextmanager
async def running(folder: Path, installed: Installed) -> AsyncIterator[Fleet]:
    """The fleet, all of one version."""
    async with AsyncExitStack() as stack:

        async def start(part: DaemonProcess) -> None:
            part.install(installed.bin, installed.environment)
            stack.push_async_callback(part.kill)
            await part.start()

        servers = [
            RealNameServer(
                folder / f"namesrv-{number}",
                node=f"node-{number}",
                settings={"server.listen": f"127.0.0.1:{free_port()}", "history.read_back_hours": 1},
            )
            for number in range(2)
        ]
        for server in servers:
            await start(server)
        addrs, agents = [server.addr for server in servers], list[Agent]()
        for name in BROKERS:
            redis: RedisProcess = await stack.enter_async_context(redis_process(folder / name / "redis"))
            file = folder / name / "agent.toml"
            text = AGENT.format(
                name=name, addr=redis.addr, name_servers=json.dumps(addrs), port=free_port(), queues=QUEUES
            )
            file.write_text(text, encoding="utf-8")
            agents.append(Agent(folder / name / "agent", "--config", str(file)))
            await start(agents[-1])
        fleet = Fleet(servers, agents, folder)
        await fleet.is_whole(installed)
        for worker in (*fleet.consumers, *fleet.producers):
            await start(worker)
        yield fleet


async def test_a_rolling_upgrade_and_a_rollback_lose_no_message_and_no_broker(
    tmp_path: Path, old: Installed, new: Installed
) -> None:
    async with running(tmp_path, old) as fleet:
        await fleet.flows()
        parts: list[DaemonProcess] = [*fleet.servers, *fleet.agents]
        for pair in zip(fleet.producers, fleet.consumers, strict=True):
            parts += pair

        for number, part in enumerate(parts):
            await replace(part, new)
            await fleet.is_whole(old)
            await fleet.flows()
            if number == 0:  # one name server of each version
                assert await fleet.versions(old) == [new.version, old.version]
                await fleet.agrees(old)
                await fleet.agrees(new)
        assert await fleet.versions(new) == [new.version] * 2
        at_the_top = datetime.now(UTC)
        for part in reversed(parts):
            await replace(part, old)
            await fleet.is_whole(new)
            await fleet.flows()
        assert await fleet.versions(old) == [old.version] * 2
        await fleet.agrees(new)

        for producer in fleet.producers:
            assert await producer.stop() == 0
        await eventually(lambda: fleet.sent() <= fleet.consumed(), seconds=PATIENCE_SECONDS)
        assert [line for each in fleet.producers for line in each.lines("failed")] == []
        assert fleet.times_consumed().total() < 1.5 * len(fleet.consumed())
        for agent in fleet.agents:
            loaded = agent.said("offsets loaded")
            assert [each["offsets"] > 0 for each in loaded] == [False, True, True], "each found the other's offsets"
        # Questions about the time before the rollback: the rows are the newer version's.
        at = at_the_top.isoformat(timespec="seconds")
        why = await fleet.ctl(old, "--namesrv", fleet.addrs[0], "why", "broker-a", "--at", at)
        assert why.returncode == 0, why.stderr
        assert '"UP"' in why.stdout
        for worker in fleet.consumers:
            assert await worker.stop() == 0
        for server in fleet.servers:
            assert server.events("EXPIRED", "UNREGISTERED", "PROBE_FAILED", "REJECTED") == []
            started = sorted(server.events("NAMESRV_STARTED"), key=lambda row: row["event_at"])
            assert [row["detail"]["version"] for row in started] == [old.version, new.version, old.version]


async def test_released_consumers_cannot_undo_a_reset_and_begin_at_it_when_they_are_restarted(
    tmp_path: Path, old: Installed, new: Installed
) -> None:
    async with running(tmp_path, new) as fleet:
        if not is_older_than_resets(old):
            pytest.skip("its consumers follow a reset")
        await fleet.flows()
        for consumer in fleet.consumers:
            await replace(consumer, old)
        await fleet.flows()

        async def committed() -> set[int]:
            done = await fleet.ctl(new, "--namesrv", fleet.addrs[0], "offsets", "billing")
            rows = json.loads(done.stdout)["offsets"]
            return {each["committedOffset"] for each in rows if each["topic"] == "orders"}

        await read_until(committed, lambda offsets: offsets and 0 not in offsets, seconds=PATIENCE_SECONDS)
        reset = ("offsets", "reset", "billing", "orders", "--to", "earliest", "--yes")
        done = await fleet.ctl(new, "--namesrv", ",".join(fleet.addrs), *reset)
        assert done.returncode == 0, done.stderr
        members = json.loads(done.stdout)["plan"]["members"]
        assert [each["followsReset"] for each in members] == [False, False]
        await fleet.flows()
        logs = [tmp_path / f"consumer-{number}" / "log" for number in range(2)]
        await eventually(
            lambda: all("has reset the offset" in log.read_text(errors="replace") for log in logs),
            seconds=PATIENCE_SECONDS,
        )
        assert await committed() == {0}
        for producer in fleet.producers:
            assert await producer.stop() == 0
        sent = fleet.sent()
        await eventually(lambda: sent <= fleet.consumed(), seconds=PATIENCE_SECONDS)
        for consumer in fleet.consumers:
            await replace(consumer, old)
        await eventually(
            lambda: all(fleet.times_consumed()[body] > 1 for body in sent),
            seconds=PATIENCE_SECONDS,
            what="the restarted group to consume everything again",
        )
        # A released agent reads the offsets of both, and is not confused by what it does not know.
        await read_until(committed, lambda offsets: 0 not in offsets, seconds=PATIENCE_SECONDS)
        await replace(fleet.agents[0], old)
        await eventually(lambda: len(fleet.agents[0].said("offsets loaded")) == 2, seconds=PATIENCE_SECONDS)
        assert fleet.agents[0].said("offsets loaded")[-1]["offsets"] > 0
        assert fleet.agents[0].said("ignored fields that are not offsets") == []


def is_older_than_resets(installed: Installed) -> bool:
    return installed.version == "0.1.0"
