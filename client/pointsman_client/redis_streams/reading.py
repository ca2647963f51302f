"""Reads entries and bounds of streams.

The bounds are read by a script, since the reply of XINFO STREAM contains the complete first and last message. For users
without permission for scripts XINFO is used. They are read only after a pull without entries. A pull that starts where
an earlier one on the same connection ended can wait without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redis.exceptions import NoPermissionError

from pointsman.redis_queues import entry_id, id_before, offset_after, stream_key
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.stream_entry import born_at, to_received
from pointsman_client.errors import BrokerRefusedError, OffsetBeyondEndError, ResponseCode
from pointsman_client.ports.transport import PulledMessages
from pointsman_client.redis_streams.lane import Lane
from pointsman_client.redis_streams.refusal import refused
from pointsman_client.redis_streams.resp import pack

BOUNDS_SCRIPT = b"""
local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
if info.err then
  if string.find(info.err, 'no such key', 1, true) then return {'0-0', ''} end
  return info
end
local last, first = '0-0', ''
for j = 1, #info, 2 do
  if info[j] == 'last-generated-id' then last = info[j + 1]
  elseif info[j] == 'first-entry' and info[j + 1] then first = info[j + 1][1] end
end
return {last, first}
"""
"""Returns the last generated id and the id of the first entry of a stream."""

Entries = Sequence[Sequence[Any]]
"""Each is an id, and fields with values."""


class Reader:
    """Reads from one broker."""

    def __init__(self, addr: str, lane: Lane) -> None:
        self.addr = addr
        self._lane = lane
        self._can_run_scripts = True

    async def execute(self, request: bytes, *, timeout_seconds: float) -> Any:  # noqa: ANN401  # any Redis reply
        """Execute one read-only command. Raises BrokerRefusedError for an error reply."""
        (reply,) = await self._lane.execute(request, 1, timeout_seconds=timeout_seconds, is_read=True)
        if isinstance(reply, Exception):
            raise refused(self.addr, reply) from reply
        return reply

    async def entries(self, queue: MessageQueue, offset: int, *, count: int, timeout_seconds: float) -> Entries:
        """Return available entries from ``offset``."""
        arguments = (b"XREAD", b"COUNT", b"%d" % count, b"STREAMS", key_of(queue), id_before(offset).encode())
        reply = await self.execute(pack(*arguments), timeout_seconds=timeout_seconds)
        return reply[0][1] if reply else ()

    async def bounds(self, queue: MessageQueue, *, timeout_seconds: float) -> tuple[int, int]:
        """Return the offset of the first stored entry, and the end."""
        last_id, first_id = await self._read_bounds(key_of(queue), timeout_seconds)
        end = self._offset_after(queue, last_id)
        return (self._offset_after(queue, first_id) - 1 if first_id else end), end

    async def born_at(self, queue: MessageQueue, offset: int, *, timeout_seconds: float) -> tuple[int, datetime | None]:
        """Return offset and creation time of the first entry from ``offset``; the end and None, if there is none."""
        request = pack(b"XRANGE", key_of(queue), entry_id(offset).encode(), b"+", b"COUNT", b"1")
        found = await self.execute(request, timeout_seconds=timeout_seconds)
        if not found:
            return (await self.bounds(queue, timeout_seconds=timeout_seconds))[1], None
        ((found_id, fields),) = found
        return self._offset_after(queue, found_id) - 1, born_at(fields)

    async def offset_at(self, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """Return the offset of the first entry born at or after ``at``, or without a time, by binary search."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_seconds
        low, high = await self.bounds(queue, timeout_seconds=timeout_seconds)
        while low < high:
            middle = (low + high) // 2
            found, born = await self.born_at(queue, middle, timeout_seconds=ends_at - loop.time())
            if found >= high or born is None or born >= at:
                high = middle
            else:
                low = found + 1
        return low

    def pulled(self, queue: MessageQueue, offset: int, entries: Entries) -> PulledMessages:
        """Return the result of a pull. ``entries`` must not be empty."""
        messages: list[ReceivedMessage] = []
        after = offset
        for found_id, fields in entries:
            # Ids from Redis are canonical, so the full check of offset_after is not needed per message.
            if found_id[:2] != b"0-":
                if messages:
                    break  # the next pull begins with it
                raise foreign_id(self.addr, queue, found_id)
            after = int(found_id[2:])
            messages.append(to_received(fields, queue, after - 1))
        # Ids are consecutive, so missing ones were removed.
        return PulledMessages(tuple(messages), after, after - offset - len(messages))

    def check_end(self, queue: MessageQueue, offset: int, end: int) -> None:
        """Raise OffsetBeyondEndError if the queue ends before ``offset``."""
        if end < offset:
            raise OffsetBeyondEndError(self.addr, stream_key(queue.topic, queue.queue_id), offset=offset, end=end)

    async def _read_bounds(self, key: bytes, timeout_seconds: float) -> Sequence[bytes]:
        if self._can_run_scripts:
            request = pack(b"EVAL_RO", BOUNDS_SCRIPT, b"1", key)
            (reply,) = await self._lane.execute(request, 1, timeout_seconds=timeout_seconds, is_read=True)
            if not isinstance(reply, Exception):
                return reply  # type: ignore[no-any-return]  # redis-py has no type for it
            self._can_run_scripts = not isinstance(reply, NoPermissionError)
            if self._can_run_scripts:
                raise refused(self.addr, reply) from reply
        (info,) = await self._lane.execute(
            pack(b"XINFO", b"STREAM", key), 1, timeout_seconds=timeout_seconds, is_read=True
        )
        if isinstance(info, Exception):
            if "no such key" in str(info):
                return b"0-0", b""
            raise refused(self.addr, info) from info
        facts = dict(zip(info[::2], info[1::2], strict=True))
        first = facts[b"first-entry"]
        return facts[b"last-generated-id"], first[0] if first else b""

    def _offset_after(self, queue: MessageQueue, found_id: bytes) -> int:
        after = offset_after(found_id.decode())
        if after is None:
            raise foreign_id(self.addr, queue, found_id)
        return after


def foreign_id(addr: str, queue: MessageQueue, found_id: bytes) -> BrokerRefusedError:
    """Return the error for an entry that was not added with ``0-*``."""
    text = f"{key_of(queue).decode()} has the entry {found_id.decode()}, whose id is not an offset (0-n); "
    text += "write with XADD ... 0-*, and remove that entry or the stream"
    return BrokerRefusedError(addr, ResponseCode.SYSTEM_ERROR, text)


def key_of(queue: MessageQueue) -> bytes:
    """Return the key of a queue's stream."""
    return stream_key(queue.topic, queue.queue_id).encode()
