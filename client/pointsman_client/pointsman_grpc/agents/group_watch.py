"""The members of the group, from the first reliable agent in the order that all members use.

A READY agent is reliable. If there is none, so is an agent that restarted and recovered all former members (RECOVERED).
One that has just appeared in the routes next to older agents is not: members that have not joined it yet are missing.

One WatchGroup call is open at a time, and a second one only while moving to another agent. While the watched agent is
not the first, or not READY, the agents before it are tried every 20 s. A move loses nothing, since members send
heartbeats to every agent.

A notice may be lost, and a group may have notices switched off. :meth:`GroupWatch.refresh` therefore queries the
watched agent at each rebalance (RocketMQ's ``findConsumerIdList``).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc.aio

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.aio import Wakeup, deadline_in
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import PointsmanError
from pointsman_client.pointsman_grpc.agents.group_settings import to_members
from pointsman_client.pointsman_grpc.links import AgentLink, AgentLinks

POLL_INTERVAL_SECONDS = 20.0
SETTLE_SECONDS = 45.0
"""Time after which an agent that is new in the routes is reliable. Members poll routes every 30 s, and join it then."""
FIRST_RESPONSE_SECONDS = 1.0
QUERY_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 5.0

RELIABLE = frozenset({wire.GROUP_STATE_READY, wire.GROUP_STATE_RECOVERED})

logger = logging.getLogger(__name__)

_Call: TypeAlias = "grpc.aio.UnaryStreamCall[wire.WatchGroupRequest, wire.WatchGroupResponse]"


class _Watch:
    """An open call whose first message was read."""

    def __init__(self, link: AgentLink, call: _Call, first: wire.GroupMembership) -> None:
        self.addr = link.addr
        self.link = link
        self.call = call
        self.latest = first

    @property
    def state(self) -> wire.GroupState.ValueType:
        """The latest state that the agent reported."""
        return self.latest.state


class GroupWatch:
    """Watches a group while :meth:`run` runs. ``on_change`` is called when :attr:`members` changes."""

    def __init__(
        self,
        links: AgentLinks,
        *,
        group: str,
        client_id: str,
        on_change: Callable[[], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.members: Members | None = None
        """The last list from a reliable agent."""
        self.watched = ""
        """The watched agent; empty: none is reachable."""
        self._links = links
        self._request = wire.WatchGroupRequest(group=group, client_id=client_id)
        self._on_change = on_change
        self._clock = clock
        self._rng = rng
        self._backoff = FullJitterBackoff(rng.uniform, cap=MAX_BACKOFF_SECONDS)
        self._settled_at: dict[str, float] = {}
        """The agents in their order, each with the time from which it is reliable."""
        self._wakeup = Wakeup(clock)
        self._followed: _Watch | None = None

    async def refresh(self) -> None:
        """Query the watched agent for the members, with a timeout of 1 s. Without a response the last list stays."""
        watch = self._followed
        if watch is None:
            return
        link = self._links.to(watch.addr)
        request = wire.GetMembershipRequest(group=self._request.group, known=watch.latest.revision)
        try:
            deadline = deadline_in(QUERY_SECONDS)
            response = await link.call(link.groups.GetMembership, request, deadline=deadline)
        except PointsmanError as error:
            logger.debug("agent %s did not return the members of group %s: %s", watch.addr, self._request.group, error)
            return
        if response.HasField("membership") and watch is self._followed:
            self._apply_if_newer(watch, response.membership)

    def set_agents(self, addrs: Sequence[str], *, are_settled: bool) -> None:
        """Set the routed agents, in the order of all members; ``are_settled``: new ones are reliable immediately."""
        if tuple(addrs) == tuple(self._settled_at):
            return
        settled_at = self._clock.monotonic() + (0.0 if are_settled else SETTLE_SECONDS)
        self._settled_at = {addr: self._settled_at.get(addr, settled_at) for addr in addrs}
        self._wakeup.wake()

    async def run(self) -> None:
        """Watch until cancelled."""
        watch: _Watch | None = None
        try:
            while True:
                watch = watch or await self._find(self._order(), or_warming=True)
                if watch is None:
                    self.watched = ""
                    await self._wakeup.wait(self._backoff.next_wait())
                    continue
                self._backoff.reset()
                watch = await self._follow(watch)
        finally:
            if watch is not None:
                watch.call.cancel()

    async def _follow(self, watch: _Watch) -> _Watch | None:
        """Read a watch to its end. Return a better one if that replaces it."""
        self.watched, self._followed = watch.addr, watch
        self._apply(watch)
        reading = asyncio.create_task(self._read(watch))
        searching = asyncio.create_task(self._wait_for_better(watch))
        try:
            await asyncio.wait((reading, searching), return_when=asyncio.FIRST_COMPLETED)
            return searching.result() if searching.done() else reading.result()
        finally:
            self._followed = None
            reading.cancel()
            searching.cancel()
            await asyncio.gather(reading, searching, return_exceptions=True)
            watch.call.cancel()

    async def _read(self, watch: _Watch) -> None:
        """Apply updates until the call ends or its agent is no longer reliable."""
        try:
            with watch.link.errors():
                while isinstance(message := await watch.call.read(), wire.WatchGroupResponse):
                    was_reliable = watch.state in RELIABLE
                    self._apply_if_newer(watch, message.membership)
                    if watch.state in RELIABLE:
                        continue
                    if was_reliable or watch.state != wire.GROUP_STATE_WARMING:
                        return
        except PointsmanError as error:
            logger.debug("the watch of group %s at agent %s ended: %s", self._request.group, watch.addr, error)

    async def _wait_for_better(self, watch: _Watch) -> _Watch | None:
        """Wait for an agent that precedes this one and is READY; None: this one is no longer routed."""
        while True:
            await self._wakeup.wait(POLL_INTERVAL_SECONDS * self._rng.uniform(0.9, 1.0))
            order = self._order()
            if watch.addr not in order:
                return None
            is_ready = watch.state == wire.GROUP_STATE_READY
            before = order[: order.index(watch.addr)] if is_ready else [addr for addr in order if addr != watch.addr]
            better = await self._find(before)
            if better is not None:
                return better

    async def _find(self, addrs: Sequence[str], *, or_warming: bool = False) -> _Watch | None:
        """Watch the first READY agent; with ``or_warming``, else the best by :meth:`_rank`."""
        second_best: _Watch | None = None
        found: _Watch | None = None
        try:
            for addr in addrs:
                watch = await self._open(addr)
                if watch is None:
                    continue
                if watch.state == wire.GROUP_STATE_READY:
                    found = watch
                    return found
                if or_warming and self._rank(watch) > self._rank(second_best):
                    watch, second_best = second_best, watch
                if watch is not None:
                    watch.call.cancel()
            found = second_best
            return found
        finally:
            if second_best is not None and second_best is not found:
                second_best.call.cancel()

    def _rank(self, watch: _Watch | None) -> int:
        """Return how reliable a watch at an agent that is not READY is; 0: not at all."""
        if watch is None:
            return 0
        if watch.state == wire.GROUP_STATE_RECOVERED:
            return 2 if self._may_rely_on(watch.addr) else 1
        return 1 if watch.state == wire.GROUP_STATE_WARMING else 0

    def _may_rely_on(self, addr: str) -> bool:
        """Return whether a RECOVERED agent has been in the routes as long as the others."""
        now = self._clock.monotonic()
        settled = {each for each, at in self._settled_at.items() if at <= now}
        return addr in settled or not settled

    async def _open(self, addr: str) -> _Watch | None:
        link = self._links.to(addr)
        call: _Call = link.groups.WatchGroup(self._request)
        watch: _Watch | None = None
        try:
            async with asyncio.timeout(FIRST_RESPONSE_SECONDS):
                with link.errors():
                    message = await call.read()
            if isinstance(message, wire.WatchGroupResponse):
                watch = _Watch(link, call, message.membership)
        except (TimeoutError, PointsmanError) as error:
            logger.debug("group %s cannot be watched at agent %s: %s", self._request.group, addr, error)
        finally:
            if watch is None:
                call.cancel()
        return watch

    def _order(self) -> list[str]:
        """Return the agents by preference: those that are new in the routes last."""
        now = self._clock.monotonic()
        return sorted(self._settled_at, key=lambda addr: self._settled_at[addr] > now)

    def _apply_if_newer(self, watch: _Watch, membership: wire.GroupMembership) -> None:
        """Apply a membership, from a notice or a query, unless a newer one of the same agent process was applied."""
        latest, revision = watch.latest.revision, membership.revision
        if revision.boot != latest.boot or revision.counter > latest.counter:
            watch.latest = membership
            self._apply(watch)

    def _apply(self, watch: _Watch) -> None:
        membership = watch.latest
        if membership.state not in RELIABLE:
            return
        if membership.state == wire.GROUP_STATE_RECOVERED and not self._may_rely_on(watch.addr):
            return
        members = to_members(membership)
        if members != self.members:
            self.members = members
            self._on_change()
