"""Queues that are Redis streams, as operators create, limit and remove them. Needs the extra ``redis``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.redis_queues import stream_key
from pointsman_agent.core.topic_set import TopicConfig
from pointsman_agent.redis_link import RedisLink
from pointsman_agent.topic_changes.topic_writer import TopicWriteFailedError
from pointsman_agent.topic_source import TopicSourceError
from pointsman_agent.topic_source.redis_topic_limits import LIMITS_KEY, TopicLimit
from pointsman_agent.topic_source.redis_topics import RedisTopicSource

STREAMS_A_CALL = 200
SCAN_SECONDS = 10.0
"""As a read of the topic source: the keys are in no order."""
NO_GROUP = "pointsman"
"""An empty stream is created by a consumer group of Redis, which is destroyed right away."""

REMOVE = """
local found = {}
for i, key in ipairs(KEYS) do
  local info = redis.pcall('XINFO', 'STREAM', key)
  found[i] = 'moved'
  if info.err then
    if string.find(info.err, 'no such key', 1, true) then found[i] = 'absent' end
  else
    for j = 1, #info, 2 do
      if info[j] == 'last-generated-id' and info[j + 1] == ARGV[i] then
        redis.call('UNLINK', key)
        found[i] = 'removed'
      end
    end
  end
end
return found
"""
"""For each key: removed if its last id is the one given, else moved; absent if there was none."""


class RedisStreams:
    """Creates and removes streams at the Redis server ``target``; ``timeout`` seconds for each STREAMS_A_CALL."""

    def __init__(self, target: str, *, clock: Clock, timeout: float, username: str = "", password: str = "") -> None:
        self._target = target
        self._clock = clock
        self._username = username
        self._password = password
        self._link = RedisLink(
            target, clock=clock, timeout=timeout, username=username, password=password, failure=TopicWriteFailedError
        )

    async def create(self, topic: str, queue_ids: Sequence[int]) -> None:
        """Create empty streams; those that exist stay as they are. Raises TopicWriteFailedError."""
        for start in range(0, len(queue_ids), STREAMS_A_CALL):
            pipeline = self._link.client.pipeline(transaction=True)
            for queue_id in queue_ids[start : start + STREAMS_A_CALL]:
                key = stream_key(topic, queue_id)
                pipeline.xgroup_create(key, NO_GROUP, id="0", mkstream=True)
                pipeline.xgroup_destroy(key, NO_GROUP)
            results = await self._link.run(pipeline.execute(raise_on_error=False))
            for each in results:
                if isinstance(each, Exception) and "BUSYGROUP" not in str(each):
                    raise TopicWriteFailedError(f"redis {self._target}: topic {topic}: {each}")

    async def remove(self, topic: str, ends: Mapping[int, int]) -> tuple[list[int], list[int]]:
        """Remove the streams whose end is the given one; return those removed, and those with another end.

        Raises TopicWriteFailedError.
        """
        removed: list[int] = []
        moved: list[int] = []
        queue_ids = sorted(ends)
        for start in range(0, len(queue_ids), STREAMS_A_CALL):
            part = queue_ids[start : start + STREAMS_A_CALL]
            keys = [stream_key(topic, queue_id) for queue_id in part]
            last_ids = [f"0-{ends[queue_id]}" for queue_id in part]
            found = await self._link.run(self._link.command("EVAL", REMOVE, len(keys), *keys, *last_ids))
            removed += [queue_id for queue_id, what in zip(part, found, strict=True) if what == "removed"]
            moved += [queue_id for queue_id, what in zip(part, found, strict=True) if what == "moved"]
        return removed, moved

    async def count(self, topic: str) -> int:
        """Return the highest number of a stream plus one, also of hidden ones. Raises TopicWriteFailedError."""
        source = RedisTopicSource(
            self._target,
            max_topics=1,
            state_version=0,
            username=self._username,
            password=self._password,
            pattern=f"{topic}:queue:[0-9]*",
        )
        try:
            found = await within(self._clock, SCAN_SECONDS, source.read())
        except TopicSourceError as error:
            raise TopicWriteFailedError(str(error)) from error
        except TimeoutError:
            raise TopicWriteFailedError(f"redis {self._target}: no response within {SCAN_SECONDS:g} s") from None
        return found.topics[0].read_queue_nums if found.topics else 0

    async def limit(self, topic: str, limit: TopicLimit) -> None:
        """Set the limit of a topic. Raises TopicWriteFailedError."""
        await self._link.run(self._link.command("HSET", LIMITS_KEY, topic, limit.to_text()))

    async def tidy(self, topic: str) -> None:
        """Remove a limit that changes nothing. Raises TopicWriteFailedError."""
        text = await self._link.run(self._link.command("HGET", LIMITS_KEY, topic))
        limit = TopicLimit.of_text(text) if isinstance(text, str) else None
        if limit is not None and not limit.restricts(await self.count(topic)):
            await self._link.run(self._link.command("HDEL", LIMITS_KEY, topic))

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()


class RedisTopicWriter:
    """Topics whose queues are the streams of a Redis server: creates streams, and limits those that exist."""

    source = "redis"

    def __init__(self, streams: RedisStreams) -> None:
        self._streams = streams

    def unwritable(self) -> str:
        """See :meth:`TopicWriter.unwritable`."""
        return ""

    async def write(self, topic: TopicConfig) -> None:
        """See :meth:`TopicWriter.write`.

        The limit comes first where a topic grows: streams without it would be queues, writable, one by one.
        """
        limit = TopicLimit(topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        await self._streams.limit(topic.topic, limit)
        await self._streams.create(topic.topic, range(max(topic.read_queue_nums, topic.write_queue_nums)))
        await self._streams.tidy(topic.topic)

    async def remove(self, topic: str) -> None:
        """See :meth:`TopicWriter.remove`. Its streams stay, hidden."""
        await self._streams.limit(topic, TopicLimit(0, 0))
        await self._streams.tidy(topic)
