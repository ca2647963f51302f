"""Topics changed at a running agent: in its file, and at a real redis-server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

from pointsman.config import to_toml
from pointsman.v1 import offset_service_pb2 as offsets_wire
from pointsman.v1 import topic_service_pb2 as wire
from pointsman.v1.offset_service_pb2_grpc import OffsetServiceStub
from pointsman.v1.topic_service_pb2_grpc import TopicServiceStub
from pointsman_agent.config import AgentConfig, OffsetsSection, ProbeSection, RpcSection, TopicsSection, load
from tests.kit.agent.from_file import agent_from_file
from tests.kit.agent.in_process import agent_config, on_chosen_listener
from tests.kit.broker.redis.process import RedisProcess, redis_process
from tests.kit.refusal import refusal_of

NO_SERVER = "127.0.0.1:1"
PERM_RW = 6


def settings(queues: int, write: int | None = None, perm: int = PERM_RW) -> wire.TopicSettings:
    return wire.TopicSettings(read_queues=queues, write_queues=queues if write is None else write, perm=perm)


@dataclass
class Served:
    """An agent and its service."""

    file: Path
    topics: Any
    offsets: Any

    async def topic(self, topic: str = "orders") -> wire.GetTopicResponse:
        found = await self.topics.GetTopic(wire.GetTopicRequest(topic=topic))
        assert isinstance(found, wire.GetTopicResponse)
        return found

    async def write(self, to: wire.TopicSettings, topic: str = "orders") -> bool:
        request = wire.WriteTopicRequest(topic=topic, settings=to, by="ann")
        return bool((await self.topics.WriteTopic(request)).changed)

    async def remove(self, topic: str = "orders") -> bool:
        return bool((await self.topics.RemoveTopic(wire.RemoveTopicRequest(topic=topic, by="ann"))).changed)

    async def remove_queues(self, ends: dict[int, int]) -> tuple[list[int], list[int]]:
        queues = [wire.RemovedQueue(queue_id=queue, max_offset=end) for queue, end in ends.items()]
        answer = await self.topics.RemoveQueues(wire.RemoveQueuesRequest(topic="orders", queues=queues, by="ann"))
        return list(answer.removed), list(answer.moved)


@asynccontextmanager
async def served(folder: Path, config: AgentConfig, *, text: str = "") -> AsyncIterator[Served]:
    """Run an agent with this configuration in a file, as its command does."""
    async with (
        agent_from_file(folder, config, text=text) as running,
        grpc.aio.insecure_channel(running.addr) as channel,
    ):
        yield Served(running.file, TopicServiceStub(channel), OffsetServiceStub(channel))


def config_of(folder: Path, **topics: Any) -> AgentConfig:
    config = agent_config([NO_SERVER])
    return replace(
        config,
        topics=replace(config.topics, check_interval_seconds=3_600.0, **topics),
        rpc=RpcSection(listen="127.0.0.1:0", grace_seconds=0.0),
        offsets=OffsetsSection(path=str(folder / "offsets.db"), flush_interval_seconds=0.05),
    )


def on_redis(config: AgentConfig, redis: RedisProcess, *, is_source: bool) -> AgentConfig:
    config = replace(
        config, broker=replace(config.broker, addr=redis.addr), probe=ProbeSection(kind="redis", interval_seconds=0.2)
    )
    return replace(config, topics=TopicsSection(source="redis", check_interval_seconds=0.1)) if is_source else config


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_process(tmp_path / "redis") as process:
        yield process


async def add(redis: RedisProcess, queue: int, count: int, topic: str = "orders") -> None:
    """Add messages to a queue."""
    async with Redis(host="127.0.0.1", port=redis.port, protocol=2) as client:
        for _ in range(count):
            await client.xadd(f"{topic}:queue:{queue}", {"body": "x", "born_at": "1700000000123"}, id="0-*")


async def keys(redis: RedisProcess, pattern: str = "*:queue:*") -> set[str]:
    async with Redis(host="127.0.0.1", port=redis.port, protocol=2, decode_responses=True) as client:
        return {str(each) for each in await client.keys(pattern)}


def numbers(queues: Iterable[wire.HeldQueue]) -> list[int]:
    return [each.queue_id for each in queues]


# --- the file -------------------------------------------------------------------------------------------------


async def test_a_topic_of_the_file_is_changed_created_and_removed_and_its_comments_stay(tmp_path: Path) -> None:
    config = config_of(tmp_path, writable=True)
    text = "# ours\n" + to_toml(on_chosen_listener(config)).replace("read_queues = 4", "read_queues = 4 # enough")
    async with served(tmp_path, config, text=text) as agent:
        agent.file.chmod(0o640)
        assert await agent.write(settings(8, 6, 4))
        assert (await agent.topic()).settings == settings(8, 6, 4)
        found = agent.file.read_text(encoding="utf-8")
        assert found == text.replace("read_queues = 4", "read_queues = 8").replace(
            "write_queues = 4", "write_queues = 6"
        ).replace('perm = "rw"', 'perm = "r"')
        assert agent.file.stat().st_mode & 0o777 == 0o640
        assert not await agent.write(settings(8, 6, 4))

        assert await agent.write(settings(2), "bills")
        assert (await agent.topic("bills")).settings == settings(2)
        assert load(agent.file, {}).topics.topic[1].name == "bills"
        assert await agent.remove()
        assert not (await agent.topic()).HasField("settings")
        assert not await agent.remove()
        assert [row.name for row in load(agent.file, {}).topics.topic] == ["bills"]
        assert [each for each in os.listdir(tmp_path) if ".toml" in each] == ["agent.toml"]


async def test_without_the_setting_the_file_is_not_touched(tmp_path: Path) -> None:
    async with served(tmp_path, config_of(tmp_path)) as agent:
        before = agent.file.read_bytes()
        assert (await agent.topic()).unwritable == "topics.writable is not set at its agent"
        refused = await refusal_of(agent.write(settings(8)))
        assert (refused.details.code, refused.status) == ("TOPIC_UNWRITABLE", grpc.StatusCode.FAILED_PRECONDITION)
        assert agent.file.read_bytes() == before
        assert (await agent.topic()).settings == settings(4)


async def test_a_link_and_a_folder_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, config_of(tmp_path, writable=True)) as agent:
        real = agent.file.rename(tmp_path / "real.toml")
        agent.file.symlink_to(real)
        assert "is a link" in (await agent.topic()).unwritable
        assert (await refusal_of(agent.write(settings(8)))).details.code == "TOPIC_UNWRITABLE"
        assert agent.file.is_symlink()
        agent.file.unlink()
        real.rename(agent.file)
        monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
        assert "the folder is not writable for it" in (await agent.topic()).unwritable
        assert (await refusal_of(agent.write(settings(8)))).details.code == "TOPIC_UNWRITABLE"


async def test_a_file_that_is_mounted_by_itself_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_self: Path, _target: Path) -> None:
        raise OSError(16, "Device or resource busy")

    async with served(tmp_path, config_of(tmp_path, writable=True)) as agent:
        before = agent.file.read_bytes()
        monkeypatch.setattr(Path, "replace", busy)
        refused = await refusal_of(agent.write(settings(8)))
        assert "cannot be replaced: Device or resource busy" in refused.message
        monkeypatch.undo()
        assert agent.file.read_bytes() == before
        assert [each for each in os.listdir(tmp_path) if ".toml" in each] == ["agent.toml"]
        assert await agent.write(settings(8))


async def test_a_file_with_an_error_is_not_changed(tmp_path: Path) -> None:
    async with served(tmp_path, config_of(tmp_path, writable=True)) as agent:
        broken = agent.file.read_text(encoding="utf-8").replace("interval_seconds = 30.0", "interval_seconds = -1.0")
        agent.file.write_text(broken, encoding="utf-8")
        refused = await refusal_of(agent.write(settings(8)))
        assert (refused.details.code, "interval_seconds" in refused.message) == ("BACKEND_UNAVAILABLE", True)
        assert agent.file.read_text(encoding="utf-8") == broken


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (wire.WriteTopicRequest(topic="a b", settings=settings(1)), "topic"),
        (wire.WriteTopicRequest(topic="%RETRY%g", settings=settings(1)), "topic"),
        (wire.WriteTopicRequest(topic="t", settings=settings(65_536, 1)), "settings.read_queues"),
        (wire.WriteTopicRequest(topic="t", settings=settings(0)), "settings.read_queues"),
        (wire.WriteTopicRequest(topic="t", settings=settings(1, perm=8)), "settings.perm"),
        (wire.WriteTopicRequest(topic="t", settings=settings(1), by="n" * 129), "by"),
        (wire.RemoveTopicRequest(topic="%DLQ%g"), "topic"),
        (wire.RemoveQueuesRequest(topic="t"), "queues"),
        (wire.RemoveQueuesRequest(topic="t", queues=[wire.RemovedQueue(queue_id=65_535)]), "queues[0].queue_id"),
        (wire.RemoveQueuesRequest(topic="t", queues=[wire.RemovedQueue(), wire.RemovedQueue()]), "queues[1].queue_id"),
    ],
)
async def test_invalid_requests_name_the_field(tmp_path: Path, request_: Any, field: str) -> None:
    async with served(tmp_path, config_of(tmp_path, writable=True)) as agent:
        method: Any = {
            wire.WriteTopicRequest: agent.topics.WriteTopic,
            wire.RemoveTopicRequest: agent.topics.RemoveTopic,
            wire.RemoveQueuesRequest: agent.topics.RemoveQueues,
        }[type(request_)]
        refused = await refusal_of(method(request_))
        assert (refused.details.code, refused.fields) == ("INVALID_REQUEST", [field])


async def test_a_broker_other_than_a_redis_server_reports_no_offsets_and_removes_no_queues(tmp_path: Path) -> None:
    async with served(tmp_path, config_of(tmp_path, writable=True)) as agent:
        found = await agent.topic()
        assert numbers(found.queues) == [0, 1, 2, 3]
        assert not any(each.HasField("max_offset") for each in found.queues)
        assert not found.removes_queues
        assert (await refusal_of(agent.remove_queues({9: 0}))).details.code == "TOPIC_UNWRITABLE"


# --- streams --------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_a_topic_of_streams_is_created_empty_shrinks_and_grows_with_its_messages(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with served(tmp_path, on_redis(config_of(tmp_path), redis, is_source=True)) as agent:
        assert await agent.write(settings(3))
        assert await keys(redis) == {f"orders:queue:{number}" for number in range(3)}
        found = await agent.topic()
        assert (found.settings, found.source, found.unwritable) == (settings(3), "redis", "")
        assert {(each.min_offset, each.max_offset, each.message_count) for each in found.queues} == {(0, 0, 0)}
        assert await keys(redis, "pointsman:topics") == set()

        await add(redis, 2, 5)
        assert await agent.write(settings(3, 1))
        assert (await agent.topic()).settings == settings(3, 1)
        assert await agent.write(settings(1, perm=4))
        held = await agent.topic()
        assert held.settings == settings(1, perm=4)
        last = held.queues[2]
        assert (last.max_offset, last.message_count, last.last_message_at.ToMilliseconds()) == (5, 5, 1_700_000_000_123)

        assert await agent.write(settings(4))
        assert (await agent.topic()).settings == settings(4)
        assert (await agent.topic()).queues[2].message_count == 5
        assert await keys(redis, "pointsman:topics") == set()


@pytest.mark.redis
async def test_queues_are_removed_with_their_offsets_when_no_message_came_since(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with served(tmp_path, on_redis(config_of(tmp_path), redis, is_source=True)) as agent:
        await agent.write(settings(3))
        await add(redis, 1, 4)
        await add(redis, 2, 5)
        commit = [offsets_wire.QueueOffset(topic="orders", queue_id=queue, offset=4) for queue in (1, 2)]
        await agent.offsets.CommitOffsets(offsets_wire.CommitOffsetsRequest(group="billing", offsets=commit))
        assert (await refusal_of(agent.remove_queues({1: 4, 2: 5}))).details.code == "QUEUE_IN_USE"
        await agent.write(settings(1))
        await add(redis, 2, 1)

        assert await agent.remove_queues({1: 4, 2: 5, 7: 0}) == ([1], [2])
        assert await keys(redis) == {"orders:queue:0", "orders:queue:2"}
        listed = await agent.offsets.ListOffsets(offsets_wire.ListOffsetsRequest(group="billing"))
        assert [each.committed.queue_id for each in listed.progress] == [2]
        assert await agent.remove_queues({1: 4, 2: 6}) == ([2], [])
        assert await keys(redis) == {"orders:queue:0"}
        # Nothing is left to hide.
        assert await keys(redis, "pointsman:topics") == set()


@pytest.mark.redis
async def test_a_removed_topic_of_streams_is_hidden_until_it_is_created_again(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with served(tmp_path, on_redis(config_of(tmp_path), redis, is_source=True)) as agent:
        await agent.write(settings(2))
        await add(redis, 0, 3)
        assert await agent.remove()
        found = await agent.topic()
        assert (found.HasField("settings"), numbers(found.queues)) == (False, [0, 1])
        assert await agent.write(settings(2))
        assert (await agent.topic()).queues[0].message_count == 3
        await agent.remove()
        assert await agent.remove_queues({0: 3, 1: 0}) == ([0, 1], [])
        assert await keys(redis, "*") == set()


@pytest.mark.redis
async def test_a_replica_leaves_changes_of_streams_to_its_master(tmp_path: Path, redis: RedisProcess) -> None:
    async with redis_process(tmp_path / "other") as other:
        await add(redis, 0, 1)
        await other.replica_of(redis)
        config = on_redis(config_of(tmp_path), other, is_source=True)
        async with served(tmp_path, replace(config, broker=replace(config.broker, id=1))) as agent:
            assert not (await agent.topic()).is_master
            refused = await refusal_of(agent.write(settings(2)))
            assert (refused.details.code, "replica" in refused.message) == ("TOPIC_UNWRITABLE", True)


@pytest.mark.redis
async def test_streams_are_removed_at_an_agent_whose_topics_are_in_its_file(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with served(tmp_path, on_redis(config_of(tmp_path, writable=True), redis, is_source=False)) as agent:
        await add(redis, 3, 2)
        await agent.write(settings(2))
        assert numbers((await agent.topic()).queues) == [0, 1, 2, 3]
        assert await agent.remove_queues({2: 0, 3: 2}) == ([3], [])
        assert numbers((await agent.topic()).queues) == [0, 1]


@pytest.mark.redis
async def test_an_account_without_the_permission_is_the_reason_that_is_named(
    tmp_path: Path, redis: RedisProcess
) -> None:
    async with served(tmp_path, on_redis(config_of(tmp_path), redis, is_source=True)) as agent:
        await redis.command("ACL", "SETUSER", "default", "-hset")
        refused = await refusal_of(agent.write(settings(2)))
        assert (refused.details.code, "hset" in refused.message) == ("BACKEND_UNAVAILABLE", True)
        await redis.command("ACL", "SETUSER", "default", "+hset", "-xgroup")
        refused = await refusal_of(agent.write(settings(2)))
        assert (refused.details.code, "xgroup" in refused.message) == ("BACKEND_UNAVAILABLE", True)
        await redis.command("ACL", "SETUSER", "default", "+xgroup")
        assert await agent.write(settings(2))
