"""Dead letters replayed with real processes: under load, and with a replay that is killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pointsman_client import Message, MessageQueue, OutgoingMessage, Producer
from pointsman_client.redis_streams import RedisStreamsTransport
from pointsman_ctl.servers.letter_replay import MAX_BATCH, REPLAY_OF
from tests.e2e.consumer_processes import ConsumerProcesses
from tests.kit.broker.redis.with_agent import BrokerPlan, RedisBroker, redis_broker
from tests.kit.ctl.command import Ended
from tests.kit.ctl.process import ctl_process, ended, started
from tests.kit.name_server.process import real_name_server
from tests.kit.waiting import read_until, running

pytestmark = [pytest.mark.e2e, pytest.mark.redis, pytest.mark.timeout(300)]

GROUP, DLQ, RETRY = "billing", "%DLQ%billing", "%RETRY%billing"
PATIENCE_SECONDS = 120.0


async def die(transport: RedisStreamsTransport, broker: RedisBroker, name: str, count: int) -> None:
    """Store dead letters as the client does."""
    queue, born_at = MessageQueue(DLQ, "c1", name, 0), datetime.now(UTC)
    letters = [
        OutgoingMessage(Message("orders", f"dead-{name}-{number}".encode()), f"{name}-{number}", born_at, 17)
        for number in range(count)
    ]
    for at in range(0, count, 500):
        await transport.send(broker.addr, queue, letters[at : at + 500], timeout_seconds=10)


async def replayed(transport: RedisStreamsTransport, broker: RedisBroker, name: str) -> list[str]:
    """Return which dead letters were sent to the retry topic, in order."""
    found: list[str] = []
    queue, at = MessageQueue(RETRY, "c1", name, 0), 0
    while True:
        pulled = await transport.pull(broker.addr, queue, at, max_messages=1_000, wait_seconds=0, timeout_seconds=10)
        if not pulled.messages:
            return found
        found += [message.properties[REPLAY_OF] for message in pulled.messages if REPLAY_OF in message.properties]
        at = pulled.next_offset


async def test_dead_letters_are_replayed_under_load_and_after_kills_none_is_lost(tmp_path: Path, *, full: bool) -> None:
    each = 5_000 if full else 500
    names = ("broker-a", "broker-b")
    wanted = {f"dead-{name}-{number}" for name in names for number in range(each)}
    transport = RedisStreamsTransport()
    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", BrokerPlan(names[0]), [server.addr]) as one,
        redis_broker(tmp_path / "b", BrokerPlan(names[1]), [server.addr]) as two,
        Producer([server.addr], transport=RedisStreamsTransport) as producer,
    ):
        brokers = dict(zip(names, (one, two), strict=True))
        consumers = ConsumerProcesses(tmp_path / "consumers", [server.addr])

        async def ctl(*arguments: str) -> Any:
            return await ctl_process("--namesrv", server.addr, "--timeout", "20", "-o", "json", *arguments)

        async def known() -> int:
            return sum(group["stored"] for group in (await ctl("dlq", "list")).document["groups"])

        async def of_one() -> list[str]:
            return await replayed(transport, one, names[0])

        sent = 0

        async def load() -> None:
            nonlocal sent
            while True:
                await producer.send(Message("orders", b"live-%d" % sent))
                sent += 1

        try:
            await asyncio.gather(*(consumers.join() for _ in range(2)))
            await asyncio.gather(*(die(transport, broker, name, each) for name, broker in brokers.items()))
            await read_until(known, lambda count: count == 2 * each, seconds=PATIENCE_SECONDS)
            async with running(load()):
                kills = 2
                for kill in range(kills):
                    replay = await started("--namesrv", server.addr, "dlq", "replay", GROUP, "--yes", "--rate", "2000")
                    goal = each * (kill + 1) // 4
                    await read_until(of_one, lambda found: len(found) >= goal, seconds=PATIENCE_SECONDS)  # noqa: B023
                    replay.kill()
                    assert (await ended(replay)).code == -9
                assert len(set(await of_one())) < each
                done = await ctl("dlq", "replay", GROUP, "--yes", "--by", "ann")
                assert (done.code, done.err) == (0, "")
                await consumers.have_consumed_all(wanted, seconds=PATIENCE_SECONDS)
            for name, broker in brokers.items():
                times = Counter(await replayed(transport, broker, name))
                assert times.keys() == {f"c1/{name}/{DLQ}/0@{offset}" for offset in range(each)}
                assert times.total() - each <= kills * MAX_BATCH
                assert max(times.values()) <= 2
            assert (await ctl("dlq", "replay", GROUP, "--yes")).document["servers"] == []
            changes = (await ctl("changes")).document["changes"]
            assert [change["what"] for change in changes] == [f"replay of dead letters of group {GROUP}"] * 3
            assert changes[-1]["by"] == "ann"
            await consumers.have_consumed_all({f"live-{number}" for number in range(sent)}, seconds=PATIENCE_SECONDS)
        finally:
            for consumer in consumers.all:
                await consumer.kill()
            await transport.close()


@pytest.mark.slow
async def test_a_replay_continues_after_its_broker_was_killed(tmp_path: Path) -> None:
    count, name = 400, "broker-a"
    async with (
        real_name_server(tmp_path / "namesrv") as server,
        redis_broker(tmp_path / "a", BrokerPlan(name), [server.addr]) as broker,
    ):
        transport = RedisStreamsTransport()

        async def ctl(*arguments: str) -> Ended:
            return await ctl_process("--namesrv", server.addr, "--timeout", "5", *arguments)

        async def sent() -> list[str]:
            return await replayed(transport, broker, name)

        try:
            await die(transport, broker, name, count)
            await read_until(lambda: ctl("dlq", "list"), lambda found: GROUP in found.out, seconds=PATIENCE_SECONDS)
            replay = await started("--namesrv", server.addr, "dlq", "replay", GROUP, "--yes", "--rate", "100")
            await read_until(sent, lambda found: len(found) > 40, seconds=PATIENCE_SECONDS)
            broker.redis.kill()
            failed = await ended(replay)
            assert failed.code == 1
            assert "REPLAY_FAILED" in failed.err or "then: broker" in failed.err
            await broker.redis.start()
            before = len(await sent())
            assert before < count
            await read_until(lambda: ctl("dlq", "list"), lambda found: not found.code, seconds=PATIENCE_SECONDS)
            again = await ctl("dlq", "replay", GROUP, "--yes")
            assert (again.code, again.err) == (0, "")
            times = Counter(await sent())
            assert times.keys() == {f"c1/{name}/{DLQ}/0@{offset}" for offset in range(count)}
            assert times.total() - count <= MAX_BATCH
        finally:
            await transport.close()
