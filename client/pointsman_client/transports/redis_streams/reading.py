"""Entries out of streams, and where streams begin and end.

Where a stream ends is asked with a script, since XINFO STREAM answers with the first and the last message; a user who
may run none is served with XINFO. It is asked only when nothing came: a pull that begins where an earlier one on the
same connection ended needs no answer before it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from redis.exceptions import NoPermissionError

from pointsman.wire.redis_queues import entry_id, id_before, offset_after, stream_key
from pointsman_client.core.message import ReceivedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import BrokerRefusedError, OffsetBeyondEndError, ResponseCode
from pointsman_client.transports.entry import born_at, to_received
from pointsman_client.transports.redis_streams.lane import Lane
from pointsman_client.transports.redis_streams.refusal import refused
from pointsman_client.transports.redis_streams.resp import pack
from pointsman_client.transports.transport import PulledMessages

LOOK = b"""
local told = redis.pcall('XINFO', 'STREAM', KEYS[1])
if told.err then
  if string.find(told.err, 'no such key', 1, true) then return {'0-0', ''} end
  return told
end
local last, first = '0-0', ''
for j = 1, #told, 2 do
  if told[j] == 'last-generated-id' then last = told[j + 1]
  elseif told[j] == 'first-entry' and told[j + 1] then first = told[j + 1][1] end
end
return {last, first}
"""
"""Last id ever given and id of the first entry, of one stream."""

Entries = Sequence[Sequence[Any]]
"""Of each: its id, and its fields with their values."""


class Reader:
    """Reads from one broker."""

    def __init__(self, addr: str, lane: Lane) -> None:
        self.addr = addr
        self._lane = lane
        self._may_run_scripts = True

    async def ask(self, request: bytes, *, timeout_seconds: float) -> Any:  # noqa: ANN401  # whatever Redis answers
        """One command that only reads. Raises BrokerRefusedError for an error."""
        (answer,) = await self._lane.ask(request, 1, timeout_seconds=timeout_seconds, is_read=True)
        if isinstance(answer, Exception):
            raise refused(self.addr, answer) from answer
        return answer

    async def entries(self, queue: MessageQueue, offset: int, *, count: int, timeout_seconds: float) -> Entries:
        """What there is from ``offset`` on."""
        words = (b"XREAD", b"COUNT", b"%d" % count, b"STREAMS", key_of(queue), id_before(offset).encode())
        answer = await self.ask(pack(*words), timeout_seconds=timeout_seconds)
        return answer[0][1] if answer else ()

    async def bounds(self, queue: MessageQueue, *, timeout_seconds: float) -> tuple[int, int]:
        """Offset of the first entry that is there, and the end."""
        last_id, first_id = await self._look(key_of(queue), timeout_seconds)
        end = self._offset_after(queue, last_id)
        return (self._offset_after(queue, first_id) - 1 if first_id else end), end

    async def born_at(self, queue: MessageQueue, offset: int, *, timeout_seconds: float) -> tuple[int, datetime | None]:
        """Offset of the first entry from ``offset`` on, and when its message was born; the end, if there is none."""
        request = pack(b"XRANGE", key_of(queue), entry_id(offset).encode(), b"+", b"COUNT", b"1")
        found = await self.ask(request, timeout_seconds=timeout_seconds)
        if not found:
            return (await self.bounds(queue, timeout_seconds=timeout_seconds))[1], None
        ((found_id, fields),) = found
        return self._offset_after(queue, found_id) - 1, born_at(fields)

    async def offset_at(self, queue: MessageQueue, at: datetime, *, timeout_seconds: float) -> int:
        """The first entry born at or after ``at``, by halves; one that does not say when counts as late enough."""
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
        """The answer to a pull; ``entries`` are some."""
        messages: list[ReceivedMessage] = []
        after = offset
        for found_id, fields in entries:
            # Redis writes ids canonically: the grammar of offset_after need not be asked for each message.
            if found_id[:2] != b"0-":
                if messages:
                    break  # the next pull begins with it
                raise self._foreign_id(queue, found_id)
            after = int(found_id[2:])
            messages.append(to_received(fields, queue, after - 1))
        # Ids are dense: what is missing between is gone.
        return PulledMessages(tuple(messages), after, after - offset - len(messages))

    def check_end(self, queue: MessageQueue, offset: int, end: int) -> None:
        """Raise OffsetBeyondEndError if the queue ends before ``offset``."""
        if end < offset:
            raise OffsetBeyondEndError(self.addr, stream_key(queue.topic, queue.queue_id), offset=offset, end=end)

    async def _look(self, key: bytes, timeout_seconds: float) -> Sequence[bytes]:
        if self._may_run_scripts:
            request = pack(b"EVAL_RO", LOOK, b"1", key)
            (answer,) = await self._lane.ask(request, 1, timeout_seconds=timeout_seconds, is_read=True)
            if not isinstance(answer, Exception):
                return answer  # type: ignore[no-any-return]  # redis-py has no type for it
            self._may_run_scripts = not isinstance(answer, NoPermissionError)
            if self._may_run_scripts:
                raise refused(self.addr, answer) from answer
        (told,) = await self._lane.ask(pack(b"XINFO", b"STREAM", key), 1, timeout_seconds=timeout_seconds, is_read=True)
        if isinstance(told, Exception):
            if "no such key" in str(told):
                return b"0-0", b""
            raise refused(self.addr, told) from told
        facts = dict(zip(told[::2], told[1::2], strict=True))
        first = facts[b"first-entry"]
        return facts[b"last-generated-id"], first[0] if first else b""

    def _offset_after(self, queue: MessageQueue, found_id: bytes) -> int:
        after = offset_after(found_id.decode())
        if after is None:
            raise self._foreign_id(queue, found_id)
        return after

    def _foreign_id(self, queue: MessageQueue, found_id: bytes) -> BrokerRefusedError:
        text = f"{key_of(queue).decode()} has an entry {found_id.decode()}, whose id is no offset: "
        text += "write with XADD ... 0-*, and remove that entry or the stream"
        return BrokerRefusedError(self.addr, ResponseCode.SYSTEM_ERROR, text)


def key_of(queue: MessageQueue) -> bytes:
    """The stream of a queue."""
    return stream_key(queue.topic, queue.queue_id).encode()
