"""The list of an address server: followed, put in use, and connections to removed name servers closed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import grpc

from pointsman.address_list import MAX_ADDRESSES
from pointsman.clock import Clock
from pointsman.name_servers import NameServerSource
from pointsman.name_servers.list_follower import NameServerFollower
from pointsman_client.aio import Wakeup, done_within
from pointsman_client.core.name_server_choice import NameServerChoice
from pointsman_client.errors import NameServerFailedError
from pointsman_client.metrics_hook import MetricsHook
from pointsman_client.ports.route_source import RouteSource

REFRESH_SECONDS = 30.0
"""Longest time between two reads of the list; RocketMQ's clients read it every 2 minutes."""
JITTER = 0.1
"""Share by which it may be shorter, so that clients do not ask at the same moment."""
IDLE_SECONDS = 3_600.0
"""Longest wait while no connection is to be closed; :class:`Wakeup` ends it."""


class NameServerList:
    """Sets the servers of ``choice`` to those of the list, each with ``scheme`` before it."""

    def __init__(
        self,
        url: str,
        source: NameServerSource,
        choice: NameServerChoice,
        routes: RouteSource,
        *,
        scheme: str,
        arrange: Callable[[list[str]], None],
        clock: Clock,
        rng: random.Random,
        hook: MetricsHook,
        longest_call_seconds: float,
    ) -> None:
        """``arrange`` sorts or shuffles the servers of a new list.

        Calls to a server that is removed may run for ``longest_call_seconds`` before its connection is closed.
        """
        self.url = url
        """Of the list."""
        self._choice = choice
        self._routes = routes
        self._scheme = scheme
        self._arrange = arrange
        self._clock = clock
        self._hook = hook
        self._longest_call_seconds = longest_call_seconds
        self._removed: dict[str, float] = {}
        """Servers whose connection is to be closed, and when. Those listed again are skipped then."""
        self._wakeup = Wakeup(clock)
        self._first: asyncio.Event = asyncio.Event()
        self._follower = NameServerFollower(
            source,
            self,
            clock=clock,
            next_wait=lambda: REFRESH_SECONDS * rng.uniform(1.0 - JITTER, 1.0),
            at_most=MAX_ADDRESSES,
        )

    @property
    def addrs(self) -> tuple[str, ...]:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        return tuple(sorted(addr.removeprefix(self._scheme) for addr in self._choice.order()))

    async def use(self, addrs: tuple[str, ...]) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        before, servers = self._choice.order(), [f"{self._scheme}{addr}" for addr in addrs]
        self._arrange(servers)
        self._choice.replace(servers)
        close_at = self._clock.monotonic() + self._longest_call_seconds
        self._removed.update((addr, close_at) for addr in before if addr not in servers)
        self._first.set()
        self._wakeup.wake()

    def on_read(self, problem: str) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        self._hook.name_server_list_read(result="failed" if problem else "ok")

    async def first(self, seconds: float) -> None:
        """Wait until a list was read, at most this long; raise :class:`NameServerFailedError` if none was."""
        if self._first.is_set():
            return
        reading = asyncio.ensure_future(self._first.wait())
        try:
            await done_within(reading, seconds, clock=self._clock)
        finally:
            reading.cancel()
        if not self._first.is_set():
            problem = self._follower.problem.removeprefix(f"{self.url}: ") or "no response yet"
            raise NameServerFailedError(self.url, grpc.StatusCode.UNAVAILABLE, f"no list of name servers: {problem}")

    async def run(self) -> None:
        """Follow the list until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follower.run(), name="pointsman-name-server-list-read")
            tasks.create_task(self._close_removed(), name="pointsman-name-server-list-close")

    async def _close_removed(self) -> None:
        while True:
            now = self._clock.monotonic()
            due = [addr for addr, close_at in self._removed.items() if close_at <= now]
            for addr in due:
                del self._removed[addr]
                if addr not in self._choice.order():
                    await self._routes.release(addr, timeout_seconds=self._longest_call_seconds)
            now = self._clock.monotonic()
            left = min(self._removed.values(), default=now + IDLE_SECONDS) - now
            if left > 0:
                await self._wakeup.wait(left)
