"""Waiting pulls at a broker: one blocking XREAD for the queues of all waiting pulls.

A pull that arrives during the XREAD interrupts it (CLIENT UNBLOCK, on another connection), and it is restarted with all
queues. If the user's ACL does not permit this, the XREAD blocks for at most 1 s, and the pull joins the next one.
Cancelling a pull has no side effect, since its messages stay in the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pointsman.redis_queues import id_before, offset_after
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerUnreachableError,
    ClientClosedError,
    PointsmanError,
)
from pointsman_client.redis_streams.lane import Lane, cancel_request
from pointsman_client.redis_streams.link import ReplyLostError
from pointsman_client.redis_streams.reading import Entries
from pointsman_client.redis_streams.refusal import refused
from pointsman_client.redis_streams.resp import pack

GREETING = pack(b"CLIENT", b"ID")
"""First command on the blocking connection. A user who is not permitted to run it cannot interrupt either."""
UNINTERRUPTIBLE_BLOCK_SECONDS = 1.0
MAX_BLOCK_SECONDS = 60.0
SLACK_SECONDS = 5.0
"""Timeout of an XREAD's reply after the blocking time; then its connection is closed."""
RETRY_SECONDS = 0.002
"""Retry interval of an interruption that arrived before the XREAD blocked."""


class BlockingReader:
    """Blocking reads at one broker. ``execute`` runs one command on another connection."""

    def __init__(self, addr: str, lane: Lane, execute: Callable[[bytes, float], Awaitable[Any]]) -> None:
        self._addr = addr
        self._lane = lane
        self._execute = execute
        self._waiters: dict[bytes, list[_Waiter]] = {}
        self._blocked_after: dict[bytes, int] = {}
        """The queues of the running XREAD, with their offsets."""
        self._new_waiter = asyncio.Event()
        self._can_interrupt = True
        self._task: asyncio.Task[None] | None = None

    async def wait(self, key: bytes, offset: int, *, count: int, seconds: float) -> Entries:
        """Return the entries that arrive from ``offset`` within ``seconds``; empty: none."""
        now = asyncio.get_running_loop().time()
        waiter = _Waiter(offset, count, now + seconds)
        self._waiters.setdefault(key, []).append(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"pointsman-redis-wait-{self._addr}")
        elif offset < self._blocked_after.get(key, offset + 1):
            self._new_waiter.set()
        try:
            async with asyncio.timeout(seconds):
                return await waiter.outcome
        except TimeoutError:
            return ()
        finally:
            self._remove(key, waiter)

    def close(self) -> list[asyncio.Task[None]]:
        """Stop all waits; return the task that is ending."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def _run(self) -> None:
        try:
            while self._waiters:
                try:
                    reply = await self._block()
                except ReplyLostError as error:
                    self._fail(BrokerUnreachableError(self._addr, error.message))
                    return
                except (BrokerError, ClientClosedError) as error:
                    self._fail(error)
                    return
                for key, entries in reply:
                    self._deliver(key, entries)
                # Pulls that got entries pull again. After one turn of the loop they are part of the next XREAD.
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._fail(ClientClosedError())
            raise

    async def _block(self) -> Any:  # noqa: ANN401  # any Redis reply
        loop = asyncio.get_running_loop()
        # The connection must be open, because an interruption needs its client id.
        link = await self._lane.open(timeout_seconds=SLACK_SECONDS)
        if not self._waiters:
            return ()
        self._can_interrupt = self._can_interrupt and link.greeting is not None
        waiters = [waiter for waiters in self._waiters.values() for waiter in waiters]
        longest = MAX_BLOCK_SECONDS if self._can_interrupt else UNINTERRUPTIBLE_BLOCK_SECONDS
        seconds = max(0.001, min(longest, max(waiter.until for waiter in waiters) - loop.time()))
        blocked_after = {key: min(waiter.offset for waiter in found) for key, found in self._waiters.items()}
        after = [id_before(offset).encode() for offset in blocked_after.values()]
        count = max(waiter.count for waiter in waiters)
        arguments = (b"XREAD", b"COUNT", b"%d" % count, b"BLOCK", b"%d" % int(seconds * 1000 + 1), b"STREAMS")
        self._new_waiter.clear()
        self._blocked_after = blocked_after
        request = link.execute(pack(*arguments, *blocked_after, *after), 1, timeout_seconds=seconds + SLACK_SECONDS)
        request_task = asyncio.create_task(request, name=f"pointsman-redis-xread-{self._addr}")
        try:
            if not await self._until_replied(request_task, link.greeting):
                link.close()
                return ()
            (reply,) = request_task.result()
        finally:
            self._blocked_after = {}
            if not request_task.done():
                await cancel_request(request_task)
        if isinstance(reply, Exception):
            raise refused(self._addr, reply) from reply
        return reply or ()

    async def _until_replied(self, request_task: asyncio.Task[list[Any]], client_id: int) -> bool:
        """Wait for the reply, and interrupt it for new waiters. False: not permitted; the XREAD is still blocking."""
        while not request_task.done():
            arrival = asyncio.create_task(self._new_waiter.wait(), name=f"pointsman-redis-new-waiter-{self._addr}")
            try:
                await asyncio.wait({request_task, arrival}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrival.cancel()
            if request_task.done():
                return True
            if not self._can_interrupt:
                await asyncio.wait({request_task})
                return True
            try:
                hit = await self._execute(pack(b"CLIENT", b"UNBLOCK", b"%d" % client_id), SLACK_SECONDS)
            except BrokerRefusedError:
                self._can_interrupt = False
                return False
            if hit:
                await asyncio.wait({request_task})
            else:
                await asyncio.wait({request_task}, timeout=RETRY_SECONDS)
        return True

    def _deliver(self, key: bytes, entries: Entries) -> None:
        for waiter in list(self._waiters.get(key, ())):
            mine = [entry for entry in entries if _comes_after(entry[0], waiter.offset)][: waiter.count]
            if mine and not waiter.outcome.done():
                waiter.outcome.set_result(mine)
                self._remove(key, waiter)

    def _fail(self, error: PointsmanError) -> None:
        waiters = [waiter for waiters in self._waiters.values() for waiter in waiters]
        self._waiters.clear()
        for waiter in waiters:
            if not waiter.outcome.done():
                waiter.outcome.set_exception(error)

    def _remove(self, key: bytes, waiter: _Waiter) -> None:
        waiters = self._waiters.get(key)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[key]


class _Waiter:
    __slots__ = ("count", "offset", "outcome", "until")

    def __init__(self, offset: int, count: int, until: float) -> None:
        self.offset = offset
        self.count = count
        self.until = until
        self.outcome: asyncio.Future[Entries] = asyncio.get_running_loop().create_future()


def _comes_after(entry_id: bytes, offset: int) -> bool:
    after = offset_after(entry_id.decode())
    return after is None or after > offset
