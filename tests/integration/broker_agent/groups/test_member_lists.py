"""The lists of members that outlive an agent: in a file, and in a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pointsman.clock import SystemClock
from pointsman.manual_clock import ManualClock
from pointsman_agent.core.group_rules import GroupRules
from pointsman_agent.groups.member_lists import MemberListFile, MemberListKeeper, MemberLists, MemberListsFailed
from pointsman_agent.groups.redis_member_lists import KEY, RedisMemberLists
from tests.kit.agent.consumer_agents import MemoryMemberLists
from tests.kit.agent.group_clients import Consumer, reads
from tests.kit.agent.services import agent_services
from tests.kit.broker.redis.process import RedisProcess, redis_process

LISTS: MemberLists = {"billing": ["10.0.0.1@a", "10.0.0.2@b"], "%RETRY%x": ["10.0.0.1@a"]}


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_process(tmp_path) as server:
        yield server


def store_at(redis: RedisProcess) -> RedisMemberLists:
    return RedisMemberLists(redis.addr, clock=SystemClock(), timeout=5.0)


async def test_a_file_returns_what_was_written_and_none_before(tmp_path: Path) -> None:
    path = tmp_path / "state" / "offsets.db.members"
    store = MemberListFile(path, clock=SystemClock())
    assert await store.load() is None
    for lists in ({}, LISTS):
        await store.write(lists)
        assert await MemberListFile(path, clock=SystemClock()).load() == lists
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": "pointsman-members", "version": 2, "groups": {}}',
        '{"format": "pointsman-members", "version": 1, "groups": {"a.b": []}}',
        '{"format": "pointsman-members", "version": 1, "groups": {"g": ["no-address"]}}',
    ],
)
async def test_a_damaged_file_counts_as_none_and_is_logged(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "members"
    path.write_text(content)
    assert await MemberListFile(path, clock=SystemClock()).load() is None
    assert "damaged" in caplog.text


async def test_a_file_that_cannot_be_written_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MemberListsFailed, match="file"):
        await MemberListFile(tmp_path / "file" / "members", clock=SystemClock()).write({})


async def test_redis_returns_what_was_written_and_none_before(redis: RedisProcess) -> None:
    store = store_at(redis)
    assert await store.load() is None
    for lists in ({}, LISTS, {"billing": ["10.0.0.2@b"]}):
        await store.write(lists)
        later = store_at(redis)
        assert await later.load() == lists
        await later.close()
    await store.close()


async def test_after_redis_lost_its_data_or_another_agent_wrote_everything_is_written_again(
    redis: RedisProcess,
) -> None:
    store, other = store_at(redis), store_at(redis)
    await store.write(LISTS)
    await other.write({"other": ["10.0.0.9@z"]})
    await store.write({**LISTS, "new": ["10.0.0.3@c"]})
    assert await other.load() == {**LISTS, "new": ["10.0.0.3@c"]}
    await store._link.client.delete(KEY)
    await store.write(LISTS)
    assert await other.load() == LISTS
    await store.close()
    await other.close()


async def test_a_redis_that_is_down_or_holds_something_else_fails_with_its_address(redis: RedisProcess) -> None:
    store = store_at(redis)
    await store._link.client.set(KEY, "text")
    with pytest.raises(MemberListsFailed, match=redis.addr):
        await store.load()
    redis.kill()
    with pytest.raises(MemberListsFailed, match=redis.addr):
        await store.write({})
    await store.close()


async def test_changes_are_written_within_about_a_second_and_again_once_the_store_works(clock: ManualClock) -> None:
    store = MemoryMemberLists()
    async with agent_services(clock=clock, rules=GroupRules()) as agent:
        keeper = MemberListKeeper(agent.groups, store, groups_with_offsets=lambda: (), clock=clock)
        running = asyncio.create_task(keeper.run())
        await clock.advance(3.0)
        assert store.lists == {}
        first, second = Consumer(agent.addr, "10.0.0.1@a"), Consumer(agent.addr, "10.0.0.2@b")
        await first.beat(reads("g"))
        await clock.advance(1.0)
        assert store.lists == {"g": ["10.0.0.1@a"]}
        store.problem = "it is away"
        await second.beat(reads("g"))
        await clock.advance(1.0)
        store.problem = ""
        await clock.advance(6.0)
        assert store.lists == {"g": ["10.0.0.1@a", "10.0.0.2@b"]}
        await first.leave()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await keeper.finish()
        assert store.lists == {"g": ["10.0.0.2@b"]}
        for consumer in (first, second):
            await consumer.crash()


async def test_until_the_offsets_are_loaded_no_group_is_recovered(clock: ManualClock) -> None:
    loaded: list[set[str]] = []
    async with agent_services(clock=clock, rules=GroupRules()) as agent:
        keeper = MemberListKeeper(
            agent.groups, MemoryMemberLists(), groups_with_offsets=lambda: loaded[0] if loaded else None, clock=clock
        )
        running = asyncio.create_task(keeper.run())
        await clock.advance(10.0)
        assert agent.groups.core.state_of("g").value == "warming"
        loaded.append({"old"})
        await clock.advance(1.0)
        assert [agent.groups.core.state_of(name).value for name in ("g", "old")] == ["recovered", "warming"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
