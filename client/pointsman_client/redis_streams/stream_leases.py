"""Leases of messages: the consumer groups of streams, with one lease time per message.

Redis stores with each pending entry when it was delivered, and computes its idle time from its own clock. It does not
store how long a lease lasts. So a lease of S seconds is stored as a delivery MAX_INVISIBLE_SECONDS - S ago, and every
lease is over at the same idle time. Scripts do both steps: after a crash between them a lease would have no end.

All members use one consumer name: names of processes would remain in Redis, and removing a name removes its pending
entries. The delivery counter of an entry identifies a delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pointsman.clock import Clock
from pointsman.redis_queues import entry_id, id_before, lease_group, offset_after
from pointsman_client.core.lease import MAX_INVISIBLE_SECONDS, GroupBacklog, Lease, LeasedMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.stream_entry import to_received
from pointsman_client.ports.leases import PoppedMessages
from pointsman_client.redis_streams.blocking_reader import BlockingReader
from pointsman_client.redis_streams.lane import Lane
from pointsman_client.redis_streams.reading import foreign_id, key_of
from pointsman_client.redis_streams.refusal import refused
from pointsman_client.redis_streams.resp import pack

SCANNED_ENTRIES = 256
"""Pending entries of a queue that one pop checks; the next one continues behind them."""
SCAN_SECONDS = 0.5
"""Interval between two checks of the pending entries of a queue, unless the last one found a lease that is over."""
LEASE_POLL_SECONDS = 1.0
"""Longest wait while there are leases, which may end."""

_LONGEST_MS = int(MAX_INVISIBLE_SECONDS * 1000)
_HELD, _DELIVERED_AGAIN = 1, 2

_FACTS = b"""
local function facts_of(key, group)
  local groups = redis.pcall('XINFO', 'GROUPS', key)
  if groups.err then
    if string.find(groups.err, 'no such key', 1, true) then return nil end
    return groups
  end
  for _, each in ipairs(groups) do
    if each[2] == group then
      local facts = {}
      for j = 1, #each, 2 do facts[each[j]] = each[j + 1] end
      return facts
    end
  end
  return nil
end
"""

POP_SCRIPT = (
    _FACTS
    + b"""
local group, longest, scanned = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local want, idle, ordered = tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'
local out = {}
for i, key in ipairs(KEYS) do
  local facts = facts_of(key, group)
  if facts and facts.err then return facts end
  if not facts then
    out[i] = false
  else
    local entries, lost, cursor, expired, counts = {}, 0, ARGV[6 + i], {}, {}
    if want > 0 and cursor ~= '' and facts['pending'] > 0 then
      local rows = redis.call('XPENDING', key, group, cursor, '+', scanned)
      cursor = ''
      if #rows == scanned then cursor = '(' .. rows[#rows][1] end
      for _, row in ipairs(rows) do
        if row[3] >= longest then
          if #expired == want then
            cursor = '(' .. expired[want]
            break
          end
          expired[#expired + 1] = row[1]
          counts[row[1]] = row[4] + 1
        elseif ordered then
          break
        end
      end
      if #expired > 0 then
        local claim = {'XCLAIM', key, group, 'members', longest}
        for _, id in ipairs(expired) do claim[#claim + 1] = id end
        claim[#claim + 1] = 'IDLE'
        claim[#claim + 1] = idle
        for _, entry in ipairs(redis.call(unpack(claim))) do
          entries[#entries + 1] = {entry[1], entry[2], counts[entry[1]]}
        end
        lost = #expired - #entries
        if cursor == '' then cursor = '-' end
      end
    end
    want = want - #entries
    if want > 0 and not (ordered and facts['pending'] > lost) then
      local reply = redis.call('XREADGROUP', 'GROUP', group, 'members', 'COUNT', want, 'STREAMS', key, '>')
      if reply then
        local new = reply[1][2]
        local claim = {'XCLAIM', key, group, 'members', 0}
        for _, entry in ipairs(new) do
          claim[#claim + 1] = entry[1]
          entries[#entries + 1] = {entry[1], entry[2], 1}
        end
        for _, word in ipairs({'IDLE', idle, 'JUSTID'}) do claim[#claim + 1] = word end
        redis.call(unpack(claim))
        want = want - #new
        local before = string.match(facts['last-delivered-id'], '^0%-(%d+)$')
        local first = string.match(new[1][1], '^0%-(%d+)$')
        if before and first then lost = lost + tonumber(first) - tonumber(before) - 1 end
      end
    end
    out[i] = {entries, lost, cursor}
  end
end
return out
"""
)
"""Returns for each queue: its entries with their numbers of deliveries, how many were removed before they were
finished, and where the next check of pending entries begins; false: the group has not begun the queue."""

LEASE_SCRIPT = b"""
local group, idle, out = ARGV[1], ARGV[2], {}
for j = 3, #ARGV, 3 do
  local key, id = KEYS[tonumber(ARGV[j])], ARGV[j + 1]
  local rows = redis.pcall('XPENDING', key, group, id, id, 1)
  if rows.err and string.sub(rows.err, 1, 7) ~= 'NOGROUP' then return rows end
  local row = not rows.err and rows[1]
  if not row then
    out[#out + 1] = 0
  elseif row[4] ~= tonumber(ARGV[j + 2]) then
    out[#out + 1] = 2
  else
    if idle == '' then
      redis.call('XACK', key, group, id)
    elseif #redis.call('XRANGE', key, id, id) > 0 then
      redis.call('XCLAIM', key, group, 'members', 0, id, 'IDLE', idle, 'JUSTID')
    end
    out[#out + 1] = 1
  end
end
return out
"""
"""Acknowledges deliveries, or changes the end of their leases. Returns 1 for each that held its lease, 2 if the message
was delivered again since, 0 if it is not pending. XCLAIM would remove the pending entry of a message that was trimmed,
whose handler may still finish it."""

BACKLOG_SCRIPT = (
    _FACTS
    + b"""
local out = {}
for i, key in ipairs(KEYS) do
  local facts = facts_of(key, ARGV[1])
  if facts and facts.err then return facts end
  out[i] = facts and {facts['last-delivered-id'], facts['pending']} or false
end
return out
"""
)


class Leases:
    """The leases at one broker. ``lane`` is a connection that does not block."""

    def __init__(self, addr: str, lane: Lane, waiting: BlockingReader, clock: Clock) -> None:
        self._addr = addr
        self._lane = lane
        self._waiting = waiting
        self._clock = clock
        self._cursors: dict[tuple[str, MessageQueue], tuple[bytes, float]] = {}
        """By group and queue: where to continue the check of pending entries, and not before when."""

    async def pop(
        self,
        queues: Sequence[MessageQueue],
        *,
        group: str,
        max_messages: int,
        invisible_seconds: float,
        is_ordered: bool,
        timeout_seconds: float,
    ) -> PoppedMessages:
        """See :meth:`LeasesMessages.pop`."""
        now = self._clock.monotonic()
        # Whether an ordered queue is free is seen by its first pending entries.
        cursors = [b"-" if is_ordered else self._cursor(group, queue, now) for queue in queues]
        arguments = (
            b"%d" % _LONGEST_MS,
            b"%d" % SCANNED_ENTRIES,
            b"%d" % max_messages,
            _idle(invisible_seconds),
            b"%d" % is_ordered,
            *cursors,
        )
        found = await self._run(POP_SCRIPT, queues, group, arguments, timeout_seconds)
        messages: list[LeasedMessage] = []
        trimmed: dict[MessageQueue, int] = {}
        without: list[MessageQueue] = []
        for queue, checked_from, state in zip(queues, cursors, found, strict=True):
            if state is None:
                without.append(queue)
                continue
            entries, lost, cursor = state
            if lost:
                trimmed[queue] = lost
            if checked_from:
                self._cursors[group, queue] = (cursor or b"-", now if cursor else now + SCAN_SECONDS)
            messages += (self._leased(queue, *entry) for entry in entries)
        return PoppedMessages(tuple(messages), trimmed, tuple(without))

    async def wait(
        self,
        queues: Sequence[MessageQueue],
        *,
        group: str,
        is_ordered: bool,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """See :meth:`LeasesMessages.wait_for_messages`."""
        ends_at = self._clock.monotonic() + wait_seconds
        backlogs = await self.backlogs(queues, group=group, timeout_seconds=timeout_seconds)
        if len(backlogs) < len(queues):
            return
        if any(each.unfinished for each in backlogs.values()):
            ends_at = min(ends_at, self._clock.monotonic() + LEASE_POLL_SECONDS)
        seconds = max(0.0, ends_at - self._clock.monotonic())
        free = {queue: each for queue, each in backlogs.items() if not (is_ordered and each.unfinished)}
        if not free:
            await self._clock.sleep(seconds)
            return
        waits = [
            asyncio.create_task(
                self._waiting.wait(key_of(queue), each.next_offset, count=1, seconds=seconds),
                name=f"pointsman-redis-wait-{self._addr}-{queue.queue_id}",
            )
            for queue, each in free.items()
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.wait(waits)
        for wait in done:
            wait.result()

    async def acknowledge(self, leases: Sequence[Lease], *, group: str, timeout_seconds: float) -> tuple[Lease, ...]:
        """See :meth:`LeasesMessages.acknowledge`."""
        states = await self._on_leases(leases, group=group, idle=b"", timeout_seconds=timeout_seconds)
        return tuple(lease for lease, state in zip(leases, states, strict=True) if state == _DELIVERED_AGAIN)

    async def change_invisible(
        self, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """See :meth:`LeasesMessages.change_invisible`."""
        idle = _idle(invisible_seconds)
        states = await self._on_leases(leases, group=group, idle=idle, timeout_seconds=timeout_seconds)
        return tuple(lease if state == _HELD else None for lease, state in zip(leases, states, strict=True))

    async def begin_group(self, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float) -> None:
        """See :meth:`LeasesMessages.begin_group`."""
        name, begin = lease_group(group).encode(), id_before(offset).encode()
        request = pack(b"XGROUP", b"CREATE", key_of(queue), name, begin, b"MKSTREAM")
        (reply,) = await self._lane.execute(request, 1, timeout_seconds=timeout_seconds)
        if isinstance(reply, Exception) and not str(reply).startswith("BUSYGROUP"):
            raise refused(self._addr, reply) from reply

    async def backlogs(
        self, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """See :meth:`LeasesMessages.backlogs`."""
        found = await self._run(BACKLOG_SCRIPT, queues, group, (), timeout_seconds, is_read=True)
        backlogs: dict[MessageQueue, GroupBacklog] = {}
        for queue, facts in zip(queues, found, strict=True):
            if facts is not None:
                last_id, pending = facts
                backlogs[queue] = GroupBacklog(self._offset_after(queue, last_id), pending)
        return backlogs

    def _cursor(self, group: str, queue: MessageQueue, now: float) -> bytes:
        cursor, not_before = self._cursors.get((group, queue), (b"-", now))
        return cursor if not_before <= now else b""

    def _leased(self, queue: MessageQueue, found_id: bytes, fields: Sequence[bytes], count: int) -> LeasedMessage:
        offset = self._offset_after(queue, found_id) - 1
        message = to_received(fields, queue, offset)
        message = message._replace(reconsume_times=message.reconsume_times + count - 1)
        return LeasedMessage(message, Lease(queue, offset, str(count)))

    def _offset_after(self, queue: MessageQueue, found_id: bytes) -> int:
        after = offset_after(found_id.decode())
        if after is None:
            raise foreign_id(self._addr, queue, found_id)
        return after

    async def _on_leases(
        self, leases: Sequence[Lease], *, group: str, idle: bytes, timeout_seconds: float
    ) -> Sequence[int]:
        queues = list(dict.fromkeys(lease.queue for lease in leases))
        places = {queue: b"%d" % number for number, queue in enumerate(queues, 1)}
        arguments = [idle]
        for lease in leases:
            arguments += (places[lease.queue], entry_id(lease.queue_offset).encode(), lease.receipt.encode())
        states: Sequence[int] = await self._run(LEASE_SCRIPT, queues, group, arguments, timeout_seconds)
        return states

    async def _run(
        self,
        script: bytes,
        queues: Collection[MessageQueue],
        group: str,
        arguments: Sequence[bytes],
        timeout_seconds: float,
        *,
        is_read: bool = False,
    ) -> Any:  # noqa: ANN401  # any Redis reply
        keys = [key_of(queue) for queue in queues]
        name = lease_group(group).encode()
        request = pack(b"EVAL_RO" if is_read else b"EVAL", script, b"%d" % len(keys), *keys, name, *arguments)
        (reply,) = await self._lane.execute(request, 1, timeout_seconds=timeout_seconds, is_read=is_read)
        if isinstance(reply, Exception):
            raise refused(self._addr, reply) from reply
        return reply


def _idle(invisible_seconds: float) -> bytes:
    return b"%d" % max(0, _LONGEST_MS - round(invisible_seconds * 1000))
