"""Topics from the streams of a real redis-server."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from pointsman.clock import SystemClock
from pointsman.deadline import within
from pointsman_agent.core.topic_set import DataVersion, TopicConfig, TopicSet
from pointsman_agent.probe.redis_probe import RedisProbe
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source import redis_topics as redis_source
from pointsman_agent.topic_source.redis_topics import RedisTopicSource
from pointsman_agent.topic_source.topic_follower import TopicFollower
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.waiting import eventually, read_until

pytestmark = pytest.mark.redis


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_process(tmp_path / "redis") as process:
        yield process


def source_of(
    redis: RedisProcess, *, max_topics: int = 1_000, username: str = "", password: str = ""
) -> RedisTopicSource:
    return RedisTopicSource(redis.addr, max_topics=max_topics, state_version=2, username=username, password=password)


async def add(redis: RedisProcess, streams: Iterable[str]) -> None:
    """Put a message in each stream."""
    async with (
        Redis(host="127.0.0.1", port=redis.port, protocol=2) as client,
        client.pipeline(transaction=False) as pipeline,
    ):
        for stream in streams:
            pipeline.xadd(stream, {"body": "x"}, id="0-*")
        await pipeline.execute()


def queue_nums(topics: TopicSet) -> dict[str, int]:
    return {each.topic: each.read_queue_nums for each in topics.topics}


async def problem(source: RedisTopicSource) -> str:
    with pytest.raises(TopicSourceError) as raised:
        await source.read()
    return str(raised.value)


async def test_a_topic_has_the_queues_of_its_streams_and_is_readable_and_writable(redis: RedisProcess) -> None:
    await add(redis, [*(f"orders:queue:{number}" for number in range(4)), "bills:queue:0"])

    topics = await source_of(redis).read()

    assert topics.topics == (TopicConfig("bills", 1, 1, 6), TopicConfig("orders", 4, 4, 6))
    assert topics.data_version == DataVersion(2, 0, topics.data_version.counter)


async def test_the_version_follows_from_the_queues_and_from_nothing_else(redis: RedisProcess) -> None:
    await add(redis, ["orders:queue:0", "orders:queue:1"])
    source = source_of(redis)
    first = await source.read()
    await add(redis, ["orders:queue:0", "orders:queue:1", "another:key"])
    assert await source.read() is first
    assert await source_of(redis).read() == first

    await add(redis, ["orders:queue:2"])
    assert (await source.read()).data_version != first.data_version
    await redis.command("DEL", "orders:queue:2")
    assert await source.read() == first


async def test_a_missing_number_is_a_queue_without_messages(redis: RedisProcess) -> None:
    await add(redis, ["orders:queue:5"])

    assert queue_nums(await source_of(redis).read()) == {"orders": 6}


async def test_a_server_without_streams_is_a_broker_without_topics(redis: RedisProcess) -> None:
    await redis.command("SET", "orders:queue:0", "not a stream")

    assert (await source_of(redis).read()).topics == ()


async def test_keys_that_are_not_queues_are_skipped_and_malformed_queue_names_are_logged_once(
    redis: RedisProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pointsman_agent")
    await add(redis, ["orders:queue:0", "orders", "orders:queue:", "x:queue:y", ":queue:", "orders:queues:1"])
    await add(
        redis,
        ["or.ders:queue:0", "a:queue:65535", "b:queue:007", ":queue:1", "a:b:queue:1", "c:queue:1\n", "é:queue:0"],
    )
    await add(redis, ["last:queue:65534"])
    source = source_of(redis)
    for _ in range(3):
        assert queue_nums(await source.read()) == {"orders": 1, "last": 65_535}

    assert [record.message for record in caplog.records] == ["ignored streams with an invalid name"]
    assert caplog.records[0].facts["skipped"] == 7  # type: ignore[attr-defined]


async def test_streams_are_found_among_many_other_keys(redis: RedisProcess) -> None:
    await redis.command("DEBUG", "POPULATE", "30000", "orders:queue")
    await add(redis, [f"t{number}:queue:{number % 3}" for number in range(3_000)])

    topics = await source_of(redis, max_topics=3_000).read()

    assert queue_nums(topics) == {f"t{number}": number % 3 + 1 for number in range(3_000)}


async def test_more_topics_than_allowed_are_rejected(redis: RedisProcess) -> None:
    await add(redis, [f"t{number}:queue:{queue}" for number in range(6) for queue in range(3)])

    assert len((await source_of(redis, max_topics=6).read()).topics) == 6
    reason = await problem(source_of(redis, max_topics=5))
    assert reason == f"redis {redis.addr}: holds streams of more than topics.max_topics (5) topics; they are not used"


async def test_a_check_is_bounded_in_streams_and_in_steps(redis: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(redis, [f"orders:queue:{queue}" for queue in range(300)])
    monkeypatch.setattr(redis_source, "MAX_STREAMS", 299)
    assert "holds more than 299 streams" in await problem(source_of(redis))

    monkeypatch.setattr(redis_source, "KEYS_A_STEP", 10)
    monkeypatch.setattr(redis_source, "MAX_STEPS", 3)
    assert "SCAN is not complete after 3 steps of 10 keys" in await problem(source_of(redis))


async def test_a_login_is_used(tmp_path: Path) -> None:
    acl = ["--user", "agent", "on", ">secret", "%R~*", "+scan", "+auth"]
    async with redis_process(tmp_path, options=[*acl, "--requirepass", "other"]) as redis:
        assert (await source_of(redis, username="agent", password="secret").read()).topics == ()
        assert "Authentication required" in await problem(source_of(redis))
        assert f"redis {redis.addr}: " in await problem(source_of(redis, username="agent", password="wrong"))


async def test_an_address_without_a_server_is_an_error() -> None:
    source = RedisTopicSource(f"127.0.0.1:{free_port()}", max_topics=10, state_version=0)

    assert "redis 127.0.0.1:" in await problem(source)


@pytest.mark.parametrize(
    "answer", [b":1\r\n", b"*2\r\n$1\r\n0\r\n:5\r\n", b"*1\r\n:0\r\n", b"HTTP/1.1 400\r\n\r\n", b"*9\r\n", b""]
)
async def test_a_response_that_is_not_redis_protocol_is_an_error(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await problem(RedisTopicSource(f"127.0.0.1:{port}", max_topics=10, state_version=0))


class Gate:
    """A proxy between source and server. The first connection ends after the response to its first SCAN."""

    def __init__(self, redis: RedisProcess) -> None:
        self._redis = redis
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first = self.connections == 1
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self._redis.port)
        try:
            while request := await reader.read(65_536):
                upstream.write(request)
                writer.write(await upstream_reader.read(2**20))
                if is_first and b"SCAN" in request:
                    break
        finally:
            upstream.close()
            writer.close()


async def test_a_connection_that_ends_halfway_is_not_renewed_in_the_middle_of_a_check(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next connection may reach a restarted server, for which the cursor is meaningless.
    monkeypatch.setattr(redis_source, "KEYS_A_STEP", 10)
    await add(redis, [f"t{number}:queue:0" for number in range(200)])

    class SlowRedis(Redis):
        async def scan(self, *args: Any, **options: Any) -> Any:
            await asyncio.sleep(0.02)  # the end of the connection is known before the next SCAN is sent
            return await super().scan(*args, **options)

    monkeypatch.setattr(redis_source, "Redis", SlowRedis)
    gate = Gate(redis)
    async with await asyncio.start_server(gate.serve, "127.0.0.1", 0) as server:
        target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        source = RedisTopicSource(target, max_topics=1_000, state_version=0)

        assert f"redis {target}: " in await problem(source)

        assert gate.connections == 1
        monkeypatch.undo()
        assert len((await source.read()).topics) == 200
        assert gate.connections == 2


async def test_a_server_that_hangs_is_given_up_at_the_deadline_and_found_again(redis: RedisProcess) -> None:
    await add(redis, ["orders:queue:0"])
    changes: list[TopicSet] = []
    follower = TopicFollower(
        source_of(redis), clock=SystemClock(), interval=0.05, timeout=0.3, on_change=changes.append
    )
    task = asyncio.create_task(follower.run())
    try:
        await eventually(lambda: len(changes) == 1)
        await redis.command("CLIENT", "PAUSE", "1500", "ALL")
        await eventually(lambda: follower.state.problem == "no response within 0.3 s")
        assert follower.topics == changes[0]
        await eventually(lambda: follower.state.problem == "")
        redis.kill()
        await eventually(lambda: "redis" in follower.state.problem)
        await redis.restart()
        await eventually(lambda: follower.state.problem == "")
        assert len(changes) == 1
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_read_that_timed_out_leaves_no_connection(redis: RedisProcess) -> None:
    source = source_of(redis)
    await redis.command("CLIENT", "PAUSE", "700", "ALL")
    with pytest.raises(TimeoutError):
        await within(SystemClock(), 0.2, source.read())
    async with Redis(host="127.0.0.1", port=redis.port, protocol=2, decode_responses=True) as client:
        await read_until(client.client_list, lambda found: len(found) == 1)


async def test_a_read_or_a_probe_that_is_cancelled_at_any_step_leaves_no_connection(redis: RedisProcess) -> None:
    for steps in range(200):
        for look in (source_of(redis).read, RedisProbe(redis.addr).check):
            task = asyncio.ensure_future(look())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    gc.collect()  # a connection that was not closed warns


# --- limits by operators --------------------------------------------------------------------------------------


async def test_limits_hold_for_the_topics_that_have_streams_and_a_change_is_another_version(
    redis: RedisProcess,
) -> None:
    await add(redis, [*(f"orders:queue:{number}" for number in range(4)), "bills:queue:1", "gone:queue:0"])
    source = source_of(redis)
    first = await source.read()
    await redis.command(
        "HSET", "pointsman:topics", "orders", "4 2 6", "bills", "1 1 4", "gone", "0 0 6", "new", "1 1 6"
    )

    limited = await source.read()

    assert limited.topics == (TopicConfig("bills", 1, 1, 4), TopicConfig("orders", 4, 2, 6))
    assert limited.data_version != first.data_version
    assert await source.read() is limited
    await redis.command("DEL", "pointsman:topics")
    assert await source.read() == first


async def test_a_limit_that_is_not_ours_changes_nothing(redis: RedisProcess) -> None:
    await add(redis, ["orders:queue:0", "bills:queue:0"])
    await redis.command("HSET", "pointsman:topics", "orders", "many", "bills", "\N{SNOWMAN}")
    assert queue_nums(await source_of(redis).read()) == {"orders": 1, "bills": 1}


async def test_more_limits_than_topics_are_refused(redis: RedisProcess) -> None:
    await add(redis, ["orders:queue:0"])
    await redis.command("HSET", "pointsman:topics", "a", "1 1 6", "b", "1 1 6", "c", "1 1 6")
    assert "pointsman:topics has more than topics.max_topics (2) fields" in await problem(
        source_of(redis, max_topics=2)
    )


async def test_an_account_that_cannot_read_limits_finds_the_streams(redis: RedisProcess) -> None:
    """As one that an operator set for an older agent."""
    await add(redis, ["orders:queue:0", "orders:queue:1"])
    await redis.command("HSET", "pointsman:topics", "orders", "1 1 6")
    await redis.command("ACL", "SETUSER", "narrow", "on", ">secret", "~*:queue:*", "+scan", "+auth")
    source = source_of(redis, username="narrow", password="secret")
    assert queue_nums(await source.read()) == {"orders": 2}
