"""Ends of queues that are Redis streams (``wire/redis_queues.py`` has keys and ids). Needs the extra ``redis``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from pointsman.clock import Clock
from pointsman.redis_queues import entry_id, offset_after, stream_key
from pointsman_agent.core.measured_queue_stats import QueueEnd
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.queue_stats.ends import QueueEndsError
from pointsman_agent.redis_link import RedisLink

BATCH_QUEUES = 200
"""Queues per request: Redis serves no other client during it, about 1.5 milliseconds."""

QUERY = """
local found = {}
for i, key in ipairs(KEYS) do
  local info = redis.pcall('XINFO', 'STREAM', key)
  local length, last, first = -1, '', ''
  if not info.err then
    for j = 1, #info, 2 do
      if info[j] == 'length' then length = info[j + 1]
      elseif info[j] == 'last-generated-id' then last = info[j + 1]
      elseif info[j] == 'first-entry' and info[j + 1] then first = info[j + 1][1] end
    end
  elseif string.find(info.err, 'no such key', 1, true) then
    length, last = 0, '0-0'
  end
  found[i] = {length, last, first}
end
return found
"""
"""For each key: length, last id, first id; length -1 if the key is not a stream. A script, because XINFO STREAM returns
the first and the last message, and messages may have megabytes."""

BORN_AT = """
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = ''
  local entries = redis.pcall('XRANGE', key, ARGV[i], '+', 'COUNT', 1)
  if not entries.err and entries[1] then
    local fields = entries[1][2]
    for j = 1, #fields, 2 do
      if fields[j] == 'born_at' then found[i] = fields[j + 1]; break end
    end
  end
end
return found
"""
"""For each key: ``born_at`` of the first entry from an id; empty if there is none. The message itself is not sent."""

_TIME = re.compile(rb"[0-9]{1,15}")
"""Milliseconds since 1970 to the year 33658."""

_StreamInfo = tuple[int, bytes, bytes]


class RedisQueueEnds:
    """Queries the Redis server at ``target`` (host:port); ``timeout`` seconds for each 200 queues.

    A queue without a stream is empty: its first message creates the stream. A key that is not a stream, or has entries
    that were not added with ``0-*``, has no end comparable with an offset.
    """

    def __init__(self, target: str, *, clock: Clock, timeout: float, username: str = "", password: str = "") -> None:
        self._link = RedisLink(
            target,
            clock=clock,
            timeout=timeout,
            username=username,
            password=password,
            failure=QueueEndsError,
            texts=False,
        )

    async def ends(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, QueueEnd]:
        """See :meth:`pointsman_agent.queue_stats.ends.QueueEnds.ends`."""
        found: dict[QueueKey, QueueEnd] = {}
        rest = iter(queues)
        while batch := list(islice(rest, BATCH_QUEUES)):
            for queue, info in zip(batch, await self._link.run(self._query(batch)), strict=True):
                end = _end(info)
                if end is not None:
                    found[queue] = end
        return found

    async def max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """See :meth:`pointsman_agent.queue_stats.ends.QueueEnds.max_offsets`."""
        return {queue: end.max_offset for queue, end in (await self.ends(queues)).items()}

    async def bytes_of(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """See :meth:`pointsman_agent.queue_stats.ends.QueueContents.bytes_of`."""
        pipeline = self._link.client.pipeline(transaction=False)
        for queue in queues:
            pipeline.memory_usage(stream_key(*queue))
        sizes = await self._link.run(pipeline.execute(raise_on_error=False)) if queues else []
        return {queue: size for queue, size in zip(queues, sizes, strict=True) if isinstance(size, int)}

    async def born_at(self, messages: Collection[tuple[QueueKey, int]]) -> Mapping[tuple[QueueKey, int], float]:
        """See :meth:`pointsman_agent.queue_stats.ends.QueueContents.born_at`."""
        if not messages:
            return {}
        found = await self._link.run(self._query_born_at(messages))
        return {message: int(at) / 1000 for message, at in zip(messages, found, strict=True) if _TIME.fullmatch(at)}

    async def close(self) -> None:
        """Close the connections."""
        await self._link.close()

    async def _query(self, batch: Sequence[QueueKey]) -> Sequence[_StreamInfo]:
        keys = [stream_key(*queue) for queue in batch]
        try:
            found: Sequence[_StreamInfo] = await self._link.client.eval_ro(QUERY, len(keys), *keys)
        except ResponseError as error:
            if not _is_without_scripts(error):
                raise
        else:
            return found
        # A user without the permission for scripts: plain commands, which transfer the messages.
        pipeline = self._link.client.pipeline(transaction=False)
        for key in keys:
            pipeline.xinfo_stream(key)
        return [_from_xinfo(info) for info in await pipeline.execute(raise_on_error=False)]

    async def _query_born_at(self, messages: Collection[tuple[QueueKey, int]]) -> Sequence[bytes]:
        keys = [stream_key(*queue) for queue, _ in messages]
        try:
            found: Sequence[bytes] = await self._link.client.eval_ro(
                BORN_AT, len(keys), *keys, *(entry_id(offset) for _, offset in messages)
            )
        except ResponseError as error:
            if not _is_without_scripts(error):
                raise
            return [b""] * len(keys)
        return found


def _is_without_scripts(error: ResponseError) -> bool:
    return isinstance(error, NoPermissionError) or "unknown command" in str(error)


def _from_xinfo(info: Any) -> _StreamInfo:  # noqa: ANN401  # redis-py has no type for it
    if isinstance(info, ResponseError):
        if isinstance(info, NoPermissionError):
            raise info
        return (0, b"0-0", b"") if "no such key" in str(info) else (-1, b"", b"")
    if isinstance(info, Exception):
        raise info
    first = info["first-entry"]
    return info["length"], info["last-generated-id"], first[0] if first else b""


def _end(info: _StreamInfo) -> QueueEnd | None:
    length, last_id, first_id = info
    if length < 0:
        return None
    max_offset = offset_after(last_id.decode())
    after_first = offset_after(first_id.decode()) if first_id else None
    if max_offset is None or (first_id and after_first is None):
        return None
    return QueueEnd(
        min_offset=max_offset if after_first is None else max(0, after_first - 1), max_offset=max_offset, depth=length
    )
