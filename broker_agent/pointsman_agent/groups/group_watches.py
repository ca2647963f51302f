"""Watches of groups: push membership changes to watchers.

A watcher is sent the complete membership as of its turn: a slow reader skips older versions, and at most one message
waits for it. One task wakes the watchers of changed groups, immediately after a quiet period and then with pauses, so
that many changes in a row become few messages. A group's message is encoded once for all its watchers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pointsman.clock import Clock
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.rpc.calling_peer import ENDING_SECONDS
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman_agent.core.group_membership import Changes, GroupState
from pointsman_agent.core.groups import Groups
from pointsman_agent.rpc.agent_refusals import LimitExceeded

PAUSE_SECONDS = 0.02
"""Pause between two rounds."""
WARM_UP_PAUSE_SECONDS = 1.0
"""The same while this agent warms up and no list is reliable: all clients reconnect then."""
PAUSE_RATIO = 3.0
"""Pause after a round, as a multiple of its duration: rounds use at most a quarter of the loop."""
WAKE_BATCH = 100
"""Watchers woken together; each of them writes before the loop does anything else."""
NEVER_SENT = -1


@dataclass(slots=True, eq=False)
class _Watcher:
    task: asyncio.Task[None]
    sent_counter: int = NEVER_SENT
    """Counter of the membership last sent to it."""
    is_ended: bool = False
    """Whether this agent ended it."""
    woken: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _WatchedGroup:
    watchers: set[_Watcher] = field(default_factory=set)
    counter: int = NEVER_SENT
    message: bytes = b""


class GroupWatches:
    """All open watches. :meth:`run` must run while there may be any. ``encode`` builds a group's message."""

    def __init__(self, groups: Groups, *, encode: Callable[[str], bytes], clock: Clock, max_watchers: int) -> None:
        self._groups = groups
        self._encode = encode
        self._clock = clock
        self._bound = FairBound(max_watchers)
        self._watched: dict[str, _WatchedGroup] = {}
        self._dirty: set[str] = set()
        self._is_dirty = asyncio.Event()
        self.sent = 0

        """Messages sent to watchers."""

    @property
    def count(self) -> int:
        """Number of open watches."""
        return self._bound.total

    def count_of(self, group: str) -> int:
        """Number of open watches of one group."""
        watched = self._watched.get(group)
        return len(watched.watchers) if watched is not None else 0

    async def watch(self, group: str, write: Write, *, peer: str) -> None:
        """Send the membership, and again when it changes, until the client disconnects or :meth:`drain` ends it.

        Raises LimitExceeded, and Ended if a peer with fewer watches needed the place.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        share = self._bound.take(peer, 1, partial(_cancel, task))
        if share is None:
            raise LimitExceeded("watchers", self._bound.bound)
        watcher = _Watcher(task)
        watched = self._watched.setdefault(group, _WatchedGroup())
        watched.watchers.add(watcher)
        try:
            await self._follow(group, watched, watcher, write)
        except asyncio.CancelledError:
            if share.is_held:
                raise
            note = "this watch was ended, because its connection has the most of them and another needs one"
            raise Ended(LimitExceeded("watchers", self._bound.bound, note=note)) from None
        finally:
            self._bound.give_back(share)
            watched.watchers.discard(watcher)
            if not watched.watchers:
                del self._watched[group]

    def notify(self, changes: Changes) -> None:
        """Schedule messages to the watchers of changed groups."""
        if changes.is_state:
            self._dirty.update(self._watched)
        else:
            self._dirty.update(
                name for name in changes.groups if name in self._watched and self._groups.notices(name).notify
            )
        if self._dirty:
            self._is_dirty.set()

    async def run(self) -> None:
        """Wake watchers, until cancelled."""
        while True:
            await self._is_dirty.wait()
            started = self._clock.monotonic()
            await self._wake_dirty()
            is_relied_on = self._groups.state is not GroupState.WARMING or self._groups.is_recalled
            rest = PAUSE_SECONDS if is_relied_on else WARM_UP_PAUSE_SECONDS
            await self._clock.sleep(max(rest, PAUSE_RATIO * (self._clock.monotonic() - started)))

    async def drain(self) -> None:
        """Send each watcher the last membership and end its watch; one that does not read is cut off after 1 s."""
        watchers = [watcher for watched in self._watched.values() for watcher in watched.watchers]
        for number, watcher in enumerate(watchers, 1):
            watcher.is_ended = True
            watcher.woken.set()
            if number % WAKE_BATCH == 0:
                await asyncio.sleep(0)
        if watchers:
            _, not_reading = await asyncio.wait({watcher.task for watcher in watchers}, timeout=ENDING_SECONDS)
            for task in not_reading:
                task.cancel()

    async def _follow(self, group: str, watched: _WatchedGroup, watcher: _Watcher, write: Write) -> None:
        while True:
            watcher.woken.clear()
            counter = self._groups.revision(group)
            if counter != watcher.sent_counter:
                if counter != watched.counter:
                    watched.message, watched.counter = self._encode(group), counter
                watcher.sent_counter = counter
                self.sent += 1
                await write(watched.message)
            if not watcher.is_ended:
                await watcher.woken.wait()
            # It may have been ended while it was sent an older membership.
            elif watcher.sent_counter == self._groups.revision(group):
                return

    async def _wake_dirty(self) -> None:
        self._is_dirty.clear()
        dirty, self._dirty = self._dirty, set()
        number = 0
        for name in sorted(dirty):
            watched = self._watched.get(name)
            for watcher in list(watched.watchers) if watched is not None else ():
                watcher.woken.set()
                number += 1
                if number % WAKE_BATCH == 0:
                    await self._clock.sleep(0)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
