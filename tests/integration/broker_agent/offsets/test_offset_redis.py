"""Offsets in a real redis-server: only a reset moves them back, with several writers and after an outage of redis."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman_agent.core.offset_epoch import with_epoch
from pointsman_agent.core.offsets import BEGIN_ID, MAX_OFFSET, SEEN_ID, OffsetChange, OffsetKey, Offsets, apply_changes
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.offsets import redis_store
from pointsman_agent.offsets.flusher import Flusher, OffsetMetrics
from pointsman_agent.offsets.redis_store import RedisStore, hash_key
from pointsman_agent.offsets.stored_offsets import StoreFailed
from tests.kit.broker.redis.process import RedisProcess, free_port, redis_process
from tests.kit.waiting import read_until

pytestmark = pytest.mark.redis

K0, K1 = OffsetKey("g", "orders", 0), OffsetKey("h|2", "%RETRY%g", 12)
Q0 = QueueKey("orders", 0)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_process(tmp_path / "redis") as running:
        yield running


@asynccontextmanager
async def opened(addr: str, *, seconds: float = 5.0, password: str = "") -> AsyncIterator[RedisStore]:
    """A store for the length of the block."""
    store = RedisStore(addr, clock=SystemClock(), timeout=seconds, password=password)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def answering(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that does not speak RESP; yields its address."""
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def field(redis: RedisProcess, key: OffsetKey) -> str:
    """The content of the hash."""
    size = await redis.command("HSTRLEN", hash_key(key.group), f"{key.topic}:{key.queue_id}")
    if size == ":0":
        return ""
    script = f"return redis.call('HGET', '{hash_key(key.group)}', '{key.topic}:{key.queue_id}') .. ''"
    answer = await redis.command("EVAL", f"return redis.status_reply((function() {script} end)())", "0")
    return answer.removeprefix("+")


async def test_what_was_written_is_read_again_under_the_documented_keys(redis: RedisProcess) -> None:
    async with opened(redis.addr) as store:
        assert await store.load() == {}
        assert await store.write([OffsetChange(K0, 5), OffsetChange(K1, MAX_OFFSET)]) == {}
    async with opened(redis.addr) as another:
        assert await another.load() == {K0: 5, K1: MAX_OFFSET}
    assert await redis.command("HGET", "pointsman:offsets:g", "orders:0") == "$1"
    assert await field(redis, K1) == str(MAX_OFFSET)
    assert await redis.command("SISMEMBER", "pointsman:offsets", "h|2") == ":1"


@pytest.mark.parametrize(
    ("held", "written", "reset", "kept"),
    [
        (5, 6, False, 6),
        (6, 5, False, 6),
        (6, 5, True, 5),
        (9, 10, False, 10),
        (10, 9, False, 10),
        (2**53, 2**53 + 1, False, 2**53 + 1),
        (2**53 + 1, 2**53, False, 2**53 + 1),
        (MAX_OFFSET, MAX_OFFSET - 1, False, MAX_OFFSET),
        (MAX_OFFSET - 1, MAX_OFFSET, False, MAX_OFFSET),
        (0, 0, False, 0),
        (1, 0, True, 0),
    ],
)
async def test_any_offset_goes_backwards_only_by_a_reset(
    redis: RedisProcess, held: int, written: int, reset: bool, kept: int
) -> None:
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, held)])
        higher = await store.write([OffsetChange(K0, written, reset=reset), OffsetChange(K1, 1)])
        assert higher == ({K0: kept} if kept != written else {})
        assert await store.load() == {K0: kept, K1: 1}


async def test_many_offsets_go_in_several_exchanges(redis: RedisProcess) -> None:
    table = {OffsetKey(f"g{n % 7}", "orders", n): n for n in range(2 * redis_store.BATCH + 1)}
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(key, offset) for key, offset in table.items()])
        assert await store.load() == table


@pytest.mark.parametrize(
    ("queue", "offset"),
    [
        ("orders", "1"),
        ("orders:x", "1"),
        ("orders:65535", "1"),
        ("or ders:1", "1"),
        ("orders:1", "-1"),
        ("orders:1", "007"),
        ("orders:1", "1.5"),
        ("orders:1", str(MAX_OFFSET + 1)),
        ("orders:1", "99999999999999999999"),
        ("orders:1", ""),
    ],
)
async def test_a_malformed_offset_is_ignored_logged_and_overwritten(
    redis: RedisProcess, caplog: pytest.LogCaptureFixture, queue: str, offset: str
) -> None:
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, 5)])
        await redis.command("HSET", hash_key("g"), queue, offset)
        assert await store.load() == {K0: 5}
        assert caplog.messages == ["ignored fields that are not offsets"]
        key = OffsetKey("g", "orders", 1)
        assert await store.write([OffsetChange(key, 3)]) == {}
        assert (await store.load())[key] == 3


async def test_a_key_of_another_type_fails_and_blocks_no_other_group(redis: RedisProcess) -> None:
    await redis.command("SET", hash_key("g"), "no hash")
    async with opened(redis.addr) as store:
        with pytest.raises(StoreFailed, match="WRONGTYPE"):
            await store.write([OffsetChange(K0, 5), OffsetChange(K1, 6)])
        assert await field(redis, K1) == "6"
        await redis.command("DEL", hash_key("g"))
        assert await store.write([OffsetChange(K0, 5), OffsetChange(K1, 6)]) == {}


async def test_a_redis_that_is_down_fails_immediately_and_is_reconnected(redis: RedisProcess) -> None:
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, 5)])
        assert await redis.command("WAITAOF", "1", "0", "5000") != ""
        redis.kill()
        for _ in range(3):
            with pytest.raises(StoreFailed, match=f"redis {redis.addr}: "):
                await store.write([OffsetChange(K0, 6)])
            with pytest.raises(StoreFailed):
                await store.load()
        await redis.restart()
        assert await store.write([OffsetChange(K0, 7)]) == {}
        assert await store.load() == {K0: 7}


async def test_an_address_without_a_server_is_a_failure() -> None:
    async with opened(f"127.0.0.1:{free_port()}") as store:
        with pytest.raises(StoreFailed, match="Connect call failed"):
            await store.load()


async def test_a_redis_that_does_not_respond_fails_at_its_deadline() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with answering(say_nothing) as addr, opened(addr, seconds=0.1) as store:
        for _ in range(3):
            with pytest.raises(StoreFailed, match=r"no response within 0\.1 s"):
                await store.write([OffsetChange(K0, 6)])


@pytest.mark.parametrize("answer", [b":abc\r\n", b"$abc\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n", b""])
async def test_a_response_that_is_not_redis_protocol_is_a_failure_and_not_an_internal_error(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(100)
            writer.write(answer)
            writer.close()
            await writer.wait_closed()

    async with answering(speak) as addr, opened(addr, seconds=1.0) as store:
        with pytest.raises(StoreFailed):
            await store.write([OffsetChange(K0, 6)])
        with pytest.raises(StoreFailed):
            await store.load()


async def test_a_password_is_used_and_its_absence_reported(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "locked", options=["--requirepass", "secret"]) as redis:
        async with opened(redis.addr) as store:
            with pytest.raises(StoreFailed, match="Authentication required"):
                await store.load()
        async with opened(redis.addr, password="secret") as store:
            await store.write([OffsetChange(K0, 5)])
            assert await store.load() == {K0: 5}


async def test_a_replica_refuses_and_after_its_promotion_has_everything(tmp_path: Path) -> None:
    async with redis_process(tmp_path / "a") as master, redis_process(tmp_path / "b") as replica:
        await replica.replica_of(master)
        clock, promoted = ManualClock(), False
        offsets = Offsets()
        store = RedisStore(replica.addr, clock=clock, timeout=5.0, is_master=lambda: promoted)
        flusher = Flusher(offsets, store, interval=5.0, clock=clock, metrics=OffsetMetrics(CollectorRegistry()))
        async with opened(master.addr) as at_master:
            await flusher.refresh()
            await at_master.write([OffsetChange(K0, 5)])
            await read_until(lambda: replica.command("EXISTS", hash_key("g")), lambda found: found == ":1")
            offsets.commit("h|2", {QueueKey("%RETRY%g", 12): 3})
            assert not await flusher.flush()
            assert "read only replica" in flusher.problem

            master.kill()
            await replica.replica_of(None)
            promoted = True
            clock.now += redis_store.SETTLING_SECONDS + 1.0
            assert store.is_ours()
            assert await flusher.refresh()
            assert await flusher.flush()
        assert offsets.get("g", [Q0]) == {Q0: 5}
        assert await store.load() == {K0: 5, K1: 3}
        await store.close()


async def test_the_agent_owns_the_store_once_no_hand_over_can_run_and_the_server_is_a_master(
    redis: RedisProcess,
) -> None:
    clock, is_master = ManualClock(), True
    store = RedisStore(redis.addr, clock=clock, timeout=5.0, is_master=lambda: is_master)
    assert not store.is_ours()
    await store.load()
    assert not store.is_ours()
    clock.now += redis_store.SETTLING_SECONDS + 0.1
    assert store.is_ours()
    is_master = False
    assert not store.is_ours()
    await store.close()


async def test_a_replica_is_read_seldom_and_completely_once_it_is_a_master(redis: RedisProcess) -> None:
    clock, is_master = ManualClock(), False
    store = RedisStore(redis.addr, clock=clock, timeout=5.0, is_master=lambda: is_master)
    await store.load()
    await redis.command("SADD", redis_store.GROUPS_KEY, "g")
    await redis.command("HSET", hash_key("g"), "orders:0", "5")
    clock.now += redis_store.REPLICA_SECONDS - 0.1
    assert await store.load() == {}
    is_master = True
    assert await store.load() == {K0: 5}
    is_master = False
    clock.now += redis_store.REPLICA_SECONDS
    assert await store.load() == {K0: 5}
    await store.close()


async def test_of_two_agents_in_a_hand_over_neither_writes_backwards(redis: RedisProcess) -> None:
    chance = random.Random(4)
    queues = [QueueKey("orders", n) for n in range(5)]

    async def agent(store: RedisStore) -> None:
        clock = SystemClock()
        offsets, metrics = Offsets(), OffsetMetrics(CollectorRegistry())
        flusher = Flusher(offsets, store, interval=5.0, clock=clock, metrics=metrics)
        await flusher.refresh()
        for _ in range(60):
            offsets.commit("g", {queue: chance.randint(0, 1_000) for queue in queues})
            assert await flusher.flush()
            highest = {queue: max(highest_of[queue], n) for queue, n in offsets.get("g", queues).items()}
            highest_of.update(highest)

    highest_of = dict.fromkeys(queues, 0)
    seen = dict.fromkeys(queues, 0)

    async def watch(store: RedisStore) -> None:
        while True:
            for key, offset in (await store.load()).items():
                assert offset >= seen[key.queue]
                seen[key.queue] = offset

    async with opened(redis.addr) as old, opened(redis.addr) as new, opened(redis.addr) as third:
        watching = asyncio.create_task(watch(third))
        await asyncio.gather(agent(old), agent(new))
        assert not watching.done()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert {key.queue: offset for key, offset in (await third.load()).items()} == highest_of


async def test_more_offsets_than_any_agent_writes_are_rejected(
    redis: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_store, "MAX_LOADED", 3)
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(OffsetKey("g", "orders", n), 1) for n in range(4)])
        with pytest.raises(StoreFailed, match="have more than 3 offsets"):
            await store.load()


async def test_times_are_stored_next_to_the_offsets_the_earliest_begin_and_the_latest_observation(
    redis: RedisProcess,
) -> None:
    begin, seen = OffsetKey("g", "orders", BEGIN_ID), OffsetKey("g", "", SEEN_ID)
    async with opened(redis.addr) as store:
        assert await store.write([OffsetChange(K0, 5), OffsetChange(begin, 20), OffsetChange(seen, 30)]) == {}
        assert await store.write([OffsetChange(begin, 100), OffsetChange(seen, 9)]) == {begin: 20, seen: 30}
        assert await store.write([OffsetChange(begin, 7), OffsetChange(seen, 100)]) == {}
        assert await store.load() == {K0: 5, begin: 7, seen: 100}
    assert await redis.bulk("HGET", hash_key("g"), "orders:begin") == "7"


async def test_epochs_are_beside_the_offsets_where_version_0_1_0_does_not_look(redis: RedisProcess) -> None:
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, with_epoch(5, 7_000), reset=True), OffsetChange(K1, 6)])
        assert await store.load() == {K0: with_epoch(5, 7_000), K1: 6}
        assert await store.write([OffsetChange(K0, with_epoch(9, 6_999), reset=True)]) == {K0: with_epoch(5, 7_000)}
    assert await redis.bulk("HGET", "pointsman:offsets:g", "orders:0") == "5"
    assert await redis.bulk("HGET", "pointsman:epochs:g", "orders:0") == "7000"
    assert await redis.command("HLEN", "pointsman:offsets:g") == ":1"
    assert await redis.command("SISMEMBER", "pointsman:epochs", "g") == ":1"
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, with_epoch(5, 7_000), removed=True)])
    assert await redis.command("EXISTS", "pointsman:epochs", "pointsman:epochs:g") == ":0"


async def test_the_script_has_the_rule_of_apply_changes(redis: RedisProcess) -> None:
    changes, table = list[OffsetChange](), dict[OffsetKey, int]()
    cases = [*itertools.product((0, BEGIN_ID), (None, 4, 5, 6), (False, True), (False, True))]
    # Epochs of moments do not exist. 9 is later than 10 only as a text.
    epochs = itertools.product((4, 5, 6), (0, 9, 10), (0, 9, 10))
    numbers = [(with_epoch(held, old), with_epoch(5, new)) for held, old, new in epochs]
    for number, ((before, written), reset, removed) in enumerate(
        itertools.product(numbers, (False, True), (False, True))
    ):
        changes.append(OffsetChange(OffsetKey("g", f"e{number}", 0), written, reset=reset, removed=removed))
        table[changes[-1].key] = before
    for number, (queue_id, held, reset, removed) in enumerate(cases):
        changes.append(OffsetChange(OffsetKey("g", f"t{number}", queue_id), 5, reset=reset, removed=removed))
        if held is not None:
            table[changes[-1].key] = held
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(key, held) for key, held in table.items()])
        kept = await store.write(changes)
        assert (apply_changes(table, changes), table) == (kept, await store.load())


async def test_a_removal_applies_unless_another_agent_changed_the_offset_and_removes_an_empty_group_too(
    redis: RedisProcess,
) -> None:
    async with opened(redis.addr) as store:
        await store.write([OffsetChange(K0, 5), OffsetChange(K1, 6)])
        await store.write([OffsetChange(K0, 4, removed=True), OffsetChange(K1, 6, removed=True)])
        assert await store.load() == {K0: 5}
        await store.write([OffsetChange(K0, 5, removed=True)])
        assert await store.load() == {}
    assert await redis.command("EXISTS", "pointsman:offsets") == ":0"
