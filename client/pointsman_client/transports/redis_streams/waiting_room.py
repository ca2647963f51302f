"""Pulls that wait at a broker: one blocking XREAD for all queues that are waited for.

A pull that comes while the XREAD blocks for the others has it interrupted (CLIENT UNBLOCK, on another connection) and
begun anew with all of them. Who may not do that (an ACL) is let in when the XREAD ends by itself, which then is after
at most a second. A pull that is cancelled is simply not there any more; what comes for it stays in the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pointsman.wire.redis_queues import id_before, offset_after
from pointsman_client.errors import (
    BrokerError,
    BrokerRefusedError,
    BrokerUnreachableError,
    ClientClosedError,
    PointsmanError,
)
from pointsman_client.transports.redis_streams.lane import Lane, quietly
from pointsman_client.transports.redis_streams.link import AnswerLostError
from pointsman_client.transports.redis_streams.reading import Entries
from pointsman_client.transports.redis_streams.refusal import refused
from pointsman_client.transports.redis_streams.resp import pack

GREETING = pack(b"CLIENT", b"ID")
"""Asked first on the connection that blocks; who may not ask cannot interrupt it either."""
UNINTERRUPTED_SECONDS = 1.0
LONGEST_SECONDS = 60.0
SLACK_SECONDS = 5.0
"""That the answer to an XREAD may come late, before its connection is given up."""
RETRY_SECONDS = 0.002
"""After an interruption that came before the XREAD had begun."""


class WaitingRoom:
    """Waits at one broker. ``ask`` makes one command on another connection."""

    def __init__(self, addr: str, lane: Lane, ask: Callable[[bytes, float], Awaitable[Any]]) -> None:
        self._addr = addr
        self._lane = lane
        self._ask = ask
        self._waiters: dict[bytes, list[_Waiter]] = {}
        self._blocked_after: dict[bytes, int] = {}
        """The queues that the XREAD blocks for, with the offsets it waits at."""
        self._newcomer = asyncio.Event()
        self._may_interrupt = True
        self._working: asyncio.Task[None] | None = None

    async def wait(self, key: bytes, offset: int, *, count: int, seconds: float) -> Entries:
        """Return what comes after ``offset`` within the time; nothing, if nothing does."""
        now = asyncio.get_running_loop().time()
        waiter = _Waiter(offset, count, now + seconds)
        self._waiters.setdefault(key, []).append(waiter)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name=f"pointsman-redis-wait-{self._addr}")
        elif offset < self._blocked_after.get(key, offset + 1):
            self._newcomer.set()
        try:
            async with asyncio.timeout(seconds):
                return await waiter.outcome
        except TimeoutError:
            return ()
        finally:
            self._remove(key, waiter)

    def close(self) -> list[asyncio.Task[None]]:
        """End all waits for good."""
        if self._working is None:
            return []
        self._working.cancel()
        return [self._working]

    async def _work(self) -> None:
        try:
            while self._waiters:
                try:
                    answer = await self._block()
                except AnswerLostError as error:
                    self._fail(BrokerUnreachableError(self._addr, error.message))
                    return
                except (BrokerError, ClientClosedError) as error:
                    self._fail(error)
                    return
                for key, entries in answer:
                    self._deliver(key, entries)
                # Who got something comes back for more: with one turn of the loop it is in the next XREAD.
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._fail(ClientClosedError())
            raise

    async def _block(self) -> Any:  # noqa: ANN401  # whatever Redis answers
        loop = asyncio.get_running_loop()
        # Only an interruption needs its connection's id, and only an open connection has one.
        link = await self._lane.open(timeout_seconds=SLACK_SECONDS)
        if not self._waiters:
            return ()
        self._may_interrupt = self._may_interrupt and link.greeting is not None
        waiters = [waiter for waiters in self._waiters.values() for waiter in waiters]
        longest = LONGEST_SECONDS if self._may_interrupt else UNINTERRUPTED_SECONDS
        seconds = max(0.001, min(longest, max(waiter.until for waiter in waiters) - loop.time()))
        blocked_after = {key: min(waiter.offset for waiter in found) for key, found in self._waiters.items()}
        after = [id_before(offset).encode() for offset in blocked_after.values()]
        count = max(waiter.count for waiter in waiters)
        words = (b"XREAD", b"COUNT", b"%d" % count, b"BLOCK", b"%d" % int(seconds * 1000 + 1), b"STREAMS")
        self._newcomer.clear()
        self._blocked_after = blocked_after
        request = link.ask(pack(*words, *blocked_after, *after), 1, timeout_seconds=seconds + SLACK_SECONDS)
        asking = asyncio.create_task(request, name=f"pointsman-redis-xread-{self._addr}")
        try:
            if not await self._until_answered(asking, link.greeting):
                link.close()
                return ()
            (answer,) = asking.result()
        finally:
            self._blocked_after = {}
            if not asking.done():
                await quietly(asking)
        if isinstance(answer, Exception):
            raise refused(self._addr, answer) from answer
        return answer or ()

    async def _until_answered(self, asking: asyncio.Task[list[Any]], client_id: int) -> bool:
        """Interrupt it when somebody comes; False: that is not permitted, and it blocks on."""
        while not asking.done():
            coming = asyncio.create_task(self._newcomer.wait(), name=f"pointsman-redis-newcomer-{self._addr}")
            try:
                await asyncio.wait({asking, coming}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                coming.cancel()
            if asking.done():
                return True
            if not self._may_interrupt:
                await asyncio.wait({asking})
                return True
            try:
                hit = await self._ask(pack(b"CLIENT", b"UNBLOCK", b"%d" % client_id), SLACK_SECONDS)
            except BrokerRefusedError:
                self._may_interrupt = False
                return False
            if hit:
                await asyncio.wait({asking})
            else:
                await asyncio.wait({asking}, timeout=RETRY_SECONDS)
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
