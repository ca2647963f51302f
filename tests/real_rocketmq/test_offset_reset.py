"""``pointsmanctl offsets reset``, ``skip`` and ``clone`` on real brokers, as mqadmin and a Java consumer see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from deploy.rocketmq.processes import RocketMQ, Running, free_port, got
from pointsman_client import Message, Producer
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.ctl.command import Ended, ctl
from tests.kit.waiting import eventually, read_until, until
from tests.real_rocketmq.conftest import VERSIONS, Jars
from tests.real_rocketmq.name_server import Pointsman

pytestmark = [pytest.mark.rocketmq, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "Bills"
QUEUES = 4
EARLY, LATE = 20, 12
"""Messages before and after the time to which offsets are reset; the same number in each queue."""
LATE_ONES = set(range(EARLY, EARLY + LATE))
YES = ("--yes", "--by", "ann")


@dataclass
class Brokers:
    """One broker, registered at a name server of Pointsman, with early and late messages."""

    addr: str
    mq: RocketMQ
    clients: ExitStack
    between: float = 0.0
    """A time between them."""

    async def ctl(self, *arguments: str) -> Ended:
        return await ctl("--namesrv", self.addr, "--timeout", "20", *arguments)

    async def plan(self, *arguments: str) -> list[dict[str, Any]]:
        ended = await ctl("-o", "json", "--namesrv", self.addr, "--timeout", "20", "offsets", *arguments, "--dry-run")
        assert (ended.code, ended.err) == (0, "")
        queues: list[dict[str, Any]] = ended.document["plan"]["queues"]
        return queues

    async def admin(self, *command: str) -> str:
        return await asyncio.to_thread(self.mq.admin, *command)

    async def committed(self, group: str) -> dict[int, int]:
        """What mqadmin reads."""
        printed = await self.admin("consumerProgress", "-g", group)
        rows = (line.split() for line in printed.splitlines() if line.startswith(f"{TOPIC} "))
        return {int(row[2]): int(row[4]) for row in rows}

    def consumer(self, group: str) -> Running:
        running = self.mq.consumer(TOPIC, group=group)
        self.clients.callback(running.end)
        return running

    async def consumed(self, group: str) -> Running:
        """Have a Java consumer read and commit everything; it runs on."""
        running = self.consumer(group)
        await eventually(lambda: len(set(got(running))) == EARLY + LATE, seconds=60)
        await self.until_at_end(group)
        return running

    async def until_at_end(self, group: str) -> None:
        """Wait until everything is committed. As this program reads it: a run of mqadmin takes seconds."""

        async def lag() -> int:
            rows = await self.offsets(group)
            return sum(each["lag"] for each in rows) if len(rows) == QUEUES else -1

        await read_until(lag, lambda left: left == 0, seconds=60)

    async def offsets(self, group: str) -> list[dict[str, Any]]:
        ended = await self.ctl("-o", "json", "offsets", group)
        if ended.code:
            return []
        return [each for each in ended.document["offsets"] if each["topic"] == TOPIC]


async def send(addr: str, numbers: range) -> None:
    async with Producer(addr, transport=RocketmqTransport) as producer:
        for number in numbers:
            await producer.send(Message(TOPIC, b"%d" % number))


@pytest.fixture(scope="module", params=VERSIONS)
def started(request: pytest.FixtureRequest, jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    lib = jars.of(request.param)
    folder = tmp_path_factory.mktemp("resets")
    addr = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        pointsman = Pointsman(folder / "ns", settings={"server.listen": addr})
        stack.callback(pointsman.stop)
        mq = RocketMQ(lib, folder / lib.name, pointsman.addr)
        mq.topics_on_disk("a", 0, [TOPIC])
        stack.callback(mq.broker("a").end)
        until(lambda: pointsman.addrs("a") and pointsman.perms(TOPIC), what=f"the broker at {pointsman.addr}")
        yield Brokers(addr, mq, ExitStack())


@pytest.fixture
async def brokers(started: Brokers) -> Any:
    if not started.between:
        await send(started.addr, range(EARLY))
        await asyncio.sleep(1.0)  # brokers store times in milliseconds, and may round them
        started.between = time.time()
        await asyncio.sleep(1.0)
        await send(started.addr, range(EARLY, EARLY + LATE))
    with started.clients:
        yield started


def at(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def test_a_running_group_is_moved_to_a_time_as_mqadmin_moves_it(brokers: Brokers) -> None:
    ours, theirs = await asyncio.gather(brokers.consumed("ours"), brokers.consumed("theirs"))
    before = len(got(ours)), len(got(theirs))
    plan = await brokers.plan("reset", "ours", TOPIC, "--to", at(brokers.between))
    assert sum(each["difference"] for each in plan) == -LATE
    ended = await brokers.ctl("offsets", "reset", "ours", TOPIC, "--to", at(brokers.between), *YES)
    assert (ended.code, ended.err) == (0, "")
    await brokers.admin("resetOffsetByTime", "-g", "theirs", "-t", TOPIC, "-s", str(round(brokers.between * 1000)))
    for running, count in ((ours, before[0]), (theirs, before[1])):
        # 4.9 begins at the message of each queue that is nearest to the time, also before it.
        await eventually(lambda: {int(body) for body in got(running)[count:]} >= LATE_ONES, seconds=60)  # noqa: B023
        again = {int(body) for body in got(running)[count:]}
        assert again - (set(range(EARLY - QUEUES, EARLY)) if brokers.mq.is_4 else set()) == LATE_ONES
    for group in ("ours", "theirs"):
        await brokers.until_at_end(group)


async def test_a_stopped_group_is_reset_to_any_offset_as_mqadmin_and_a_java_consumer_read_it(brokers: Brokers) -> None:
    (await brokers.consumed("stopped")).end()
    await read_until(lambda: brokers.ctl("-o", "json", "group", "stopped"), lambda ended: ended.code == 1, seconds=60)
    full = await brokers.committed("stopped")
    targets = {0: full[0] - 2, 2: 0}
    to = [word for queue_id, offset in targets.items() for word in ("--to", f"a/{queue_id}={offset}")]
    ended = await brokers.ctl("offsets", "reset", "stopped", TOPIC, *to, *YES)
    assert (ended.code, ended.err) == (0, "")
    assert await brokers.committed("stopped") == full | targets
    again = brokers.consumer("stopped")
    await eventually(lambda: len(got(again)) == 2 + full[2], seconds=60)
    await brokers.until_at_end("stopped")


async def test_one_queue_of_a_running_group_is_reset_where_the_broker_can(brokers: Brokers) -> None:
    running = await brokers.consumed("running")
    count = len(got(running))
    full = await brokers.committed("running")
    command = ("offsets", "reset", "running", TOPIC, "--to", "-2", "--queue", "a/1", "--expect", str(full[1]), *YES)
    ended = await brokers.ctl(*command)
    if brokers.mq.is_4:
        assert ended.code == 1
        assert "resets offsets of running members only in all queues" in ended.out + ended.err
        assert await brokers.committed("running") == full
        return
    assert (ended.code, ended.err) == (0, "")
    await eventually(lambda: len(got(running)) == count + 2, seconds=60)
    await brokers.until_at_end("running")


async def test_a_clone_is_where_its_source_is(brokers: Brokers) -> None:
    (await brokers.consumed("source")).end()
    copy = await brokers.consumed("copy")
    copy.end()
    await read_until(lambda: brokers.ctl("-o", "json", "group", "copy"), lambda ended: ended.code == 1, seconds=60)
    ended = await brokers.ctl("offsets", "reset", "copy", TOPIC, "--to", "earliest", *YES)
    assert (ended.code, sum((await brokers.committed("copy")).values())) == (0, 0)
    ended = await brokers.ctl("offsets", "clone", "source", "copy", TOPIC, *YES)
    assert (ended.code, ended.err) == (0, "")
    assert await brokers.committed("copy") == await brokers.committed("source")


async def test_a_backlog_is_skipped_as_mqadmin_skips_it(brokers: Brokers) -> None:
    """The last test: there are more messages after it."""
    for group in ("skips", "skipped"):
        (await brokers.consumed(group)).end()
    await send(brokers.addr, range(100, 120))
    ended = await brokers.ctl("offsets", "skip", "skips", TOPIC, *YES)
    assert (ended.code, ended.err) == (0, "")
    await brokers.admin("skipAccumulatedMessage", "-g", "skipped", "-t", TOPIC, "-f", "true")
    ends = {each["queueId"]: each["maxOffset"] for each in await brokers.offsets("skips")}
    assert await brokers.committed("skips") == await brokers.committed("skipped") == ends
    running = brokers.consumer("skips")
    await send(brokers.addr, range(200, 201))
    await eventually(lambda: got(running) == ["200"], seconds=60)
