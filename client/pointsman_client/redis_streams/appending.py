"""Appends messages to streams by XADD, several within MULTI, and optionally waits for replicas and disk.

Without such a wait, requests are pipelined. With it they are written in rounds. WAIT blocks its connection, and its
reply covers everything written on it before. So all requests that arrive during a round share the WAIT of the next one
(group commit).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from pointsman.redis_queues import offset_after, stream_key
from pointsman_client.aio import deadline_in
from pointsman_client.core.message import OutgoingMessage
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.send_outcome import SendStatus
from pointsman_client.core.stream_entry import to_fields
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    ClientClosedError,
    ResponseCode,
)
from pointsman_client.ports.transport import SendReceipt
from pointsman_client.redis_streams.lane import Lane
from pointsman_client.redis_streams.link import first_error
from pointsman_client.redis_streams.options import RedisOptions
from pointsman_client.redis_streams.refusal import refused
from pointsman_client.redis_streams.resp import pack

MAX_ROUND = 1_000
"""Requests that share one WAIT."""
MARGIN_SECONDS = 0.2
"""A wait ends by this before its callers' deadline, so that its reply arrives in time."""

_MULTI, _EXEC = pack(b"MULTI"), pack(b"EXEC")
_INFO = pack(b"INFO", b"replication")


class Appender:
    """Appends messages at one broker."""

    def __init__(self, addr: str, lane: Lane, options: RedisOptions) -> None:
        self._addr = addr
        self._lane = lane
        self._options = options
        self._waits = options.wait_replicas > 0 or options.wait_fsync
        length = [] if options.max_length is None else [b"MAXLEN", b"~", b"%d" % options.max_length]
        self._how = (*length, b"0-*")
        self._queued: deque[_Queued] = deque()
        self._task: asyncio.Task[None] | None = None
        self._had_no_replica = False

    async def append(
        self, queue: MessageQueue, messages: Sequence[OutgoingMessage], timeout_seconds: float
    ) -> SendReceipt:
        """See :meth:`Transport.send`."""
        request, replies = self._request(queue, messages)
        if self._waits:
            entry = _Queued(request, replies, deadline_in(timeout_seconds))
            received, status = await self._in_a_round(entry, timeout_seconds)
        else:
            received = await self._lane.execute(request, replies, timeout_seconds=timeout_seconds)
            status = SendStatus.SEND_OK
        error = first_error(received)
        if error is not None:
            raise refused(self._addr, error) from error
        ids = received if replies == 1 else received[-1]
        error = first_error(ids)
        if error is not None:
            raise refused(self._addr, error) from error
        return SendReceipt(status, tuple(self._offset(entry_id) for entry_id in ids))

    def close(self) -> list[asyncio.Task[None]]:
        """Stop appending; return the task that is ending."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    def _request(self, queue: MessageQueue, messages: Sequence[OutgoingMessage]) -> tuple[bytes, int]:
        key = stream_key(queue.topic, queue.queue_id).encode()
        adds = [pack(b"XADD", key, *self._how, *to_fields(message, queue.topic)) for message in messages]
        if len(adds) == 1:
            return adds[0], 1
        return b"".join((_MULTI, *adds, _EXEC)), len(adds) + 2

    def _offset(self, entry_id: bytes) -> int:
        after = offset_after(entry_id.decode())
        if after is None:
            raise BrokerRefusedError(self._addr, ResponseCode.SYSTEM_ERROR, f"XADD returned {entry_id!r}")
        return after - 1

    async def _in_a_round(self, entry: _Queued, timeout_seconds: float) -> tuple[list[Any], SendStatus]:
        self._queued.append(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_rounds(), name=f"pointsman-redis-append-{self._addr}")
            self._task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await entry.outcome
        except TimeoutError:
            if entry.is_begun:
                raise BrokerTimeoutError(self._addr, f"no response within {timeout_seconds:g} s") from None
            raise BrokerUnreachableError(self._addr, f"not written within {timeout_seconds:g} s") from None

    async def _run_rounds(self) -> None:
        while self._queued:
            taken = [self._queued.popleft() for _ in range(min(len(self._queued), MAX_ROUND))]
            entries = [entry for entry in taken if not entry.outcome.done()]
            if not entries:
                continue
            for entry in entries:
                entry.is_begun = True
            try:
                received, status = await self._round(entries)
            except (BrokerError, ClientClosedError) as error:
                for entry in entries:
                    if not entry.outcome.done():
                        entry.outcome.set_exception(error)
                continue
            for entry in entries:
                mine, received = received[: entry.replies], received[entry.replies :]
                if not entry.outcome.done():
                    entry.outcome.set_result((mine, status))

    async def _round(self, entries: Sequence[_Queued]) -> tuple[list[Any], SendStatus]:
        now = asyncio.get_running_loop().time
        first_end, ends_at = (choose(entry.ends_at for entry in entries) for choose in (min, max))
        wait = max(1, int(1000 * min(self._options.wait_timeout_seconds, first_end - now() - MARGIN_SECONDS)))
        request, replies = [entry.request for entry in entries], sum(entry.replies for entry in entries)
        replicas = b"%d" % self._options.wait_replicas
        # Waiting for a missing replica would only last until the timeout.
        waits_for_replicas = bool(self._options.wait_replicas) and not self._had_no_replica
        if waits_for_replicas:
            request.append(pack(b"WAIT", replicas, b"%d" % wait))
        if self._options.wait_fsync:
            request.append(pack(b"WAITAOF", b"1", b"0", b"%d" % wait))
        extra = len(request) - len(entries)
        received = await self._lane.execute(b"".join(request), replies + extra, timeout_seconds=ends_at - now())
        received, waited = received[:replies], received[replies:]
        error = first_error(waited)
        if error is not None:
            raise refused(self._addr, error) from error
        status = SendStatus.SEND_OK
        if self._options.wait_fsync and waited[-1][0] < 1:
            status = SendStatus.FLUSH_DISK_TIMEOUT
        if self._options.wait_replicas:
            # If both fail, the status is that of the replicas, as in RocketMQ (CommitLog.handleDiskFlushAndHA).
            have = waited[0] if waits_for_replicas else 0
            if have < self._options.wait_replicas:
                status = await self._why_short(ends_at - now())
        return received, status

    async def _why_short(self, seconds: float) -> SendStatus:
        """Return the status for missing replicas. Errors are ignored, since the messages were stored."""
        try:
            (facts,) = await self._lane.execute(_INFO, 1, timeout_seconds=seconds)
        except (BrokerError, ClientClosedError):
            facts = b""
        self._had_no_replica = isinstance(facts, bytes) and b"connected_slaves:0" in facts
        return SendStatus.SLAVE_NOT_AVAILABLE if self._had_no_replica else SendStatus.FLUSH_SLAVE_TIMEOUT

    def _ended(self, working: asyncio.Task[None]) -> None:
        if not working.cancelled():
            return
        for entry in self._queued:
            if not entry.outcome.done():
                entry.outcome.set_exception(ClientClosedError())
        self._queued.clear()


class _Queued:
    __slots__ = ("ends_at", "is_begun", "outcome", "replies", "request")

    def __init__(self, request: bytes, replies: int, ends_at: float) -> None:
        self.request = request
        self.replies = replies
        self.ends_at = ends_at
        self.is_begun = False
        self.outcome: asyncio.Future[tuple[list[Any], SendStatus]] = asyncio.get_running_loop().create_future()
