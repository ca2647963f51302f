"""Who is in the group, according to one agent: the first, in the order of all members, that can be relied on.

That is one that is READY. Where none is, an agent is relied on that was restarted and has all members from before
(RECOVERED): not one that is new in the routes beside others, since its list may lack members that do not know it yet.

One WatchGroup call is open at a time, a second one only for the moment of a move. While the agent that is watched is
not the first, or not READY, those before it are looked at every 20 s. Nothing is lost by a move: whoever is in the
group beats at every agent.

A notice may be lost, and a group may have notices switched off: :meth:`GroupWatch.refresh` queries the agent that is
watched (RocketMQ's ``findConsumerIdList``, with each rebalance).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc.aio

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.backoff import FullJitterBackoff
from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import PointsmanError
from pointsman_client.rpc.links import AgentLink, AgentLinks

LOOK_SECONDS = 20.0
SETTLE_SECONDS = 45.0
"""An agent that is new in the routes is not relied on before: members learn of it within a poll of 30 s, and until then
its list lacks them."""
FIRST_WORD_SECONDS = 1.0
QUERY_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 5.0

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
        """What the agent said of itself last."""
        return self.latest.state


class GroupWatch:
    """Follows a group while :meth:`run` runs. ``on_change`` is called when what can be relied on differs."""

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
        """The last list that could be relied on."""
        self.watched = ""
        """The agent that is listened to; empty: none is in reach."""
        self._links = links
        self._request = wire.WatchGroupRequest(group=group, client_id=client_id)
        self._on_change = on_change
        self._clock = clock
        self._rng = rng
        self._backoff = FullJitterBackoff(rng.uniform, cap=LONGEST_BACKOFF_SECONDS)
        self._settled_at: dict[str, float] = {}
        """The agents in their order, and from when on each may be relied on."""
        self._wakeup = Wakeup(clock)
        self._followed: _Watch | None = None

    async def refresh(self) -> None:
        """Query the watched agent for the members, within a second; without a response the last list stays."""
        watch = self._followed
        if watch is None:
            return
        link = self._links.to(watch.addr)
        request = wire.GetMembershipRequest(group=self._request.group, known=watch.latest.revision)
        try:
            deadline = asyncio.get_running_loop().time() + QUERY_SECONDS
            response = await link.call(link.groups.GetMembership, request, deadline=deadline)
        except PointsmanError as error:
            logger.debug("the members of group %s were not returned by %s: %s", self._request.group, watch.addr, error)
            return
        if response.HasField("membership") and watch is self._followed:
            self._take_later(watch, response.membership)

    def use(self, addrs: Sequence[str], *, are_settled: bool) -> None:
        """Take the agents there are, in the order of all members; ``are_settled``: new ones are relied on now."""
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
        """Listen to a watch to its end; return a better one, if that is why it was ended."""
        self.watched, self._followed = watch.addr, watch
        self._take(watch)
        reading = asyncio.create_task(self._read(watch))
        looking = asyncio.create_task(self._look_for_better(watch))
        try:
            await asyncio.wait((reading, looking), return_when=asyncio.FIRST_COMPLETED)
            return looking.result() if looking.done() else reading.result()
        finally:
            self._followed = None
            reading.cancel()
            looking.cancel()
            await asyncio.gather(reading, looking, return_exceptions=True)
            watch.call.cancel()

    async def _read(self, watch: _Watch) -> None:
        """Take what comes until the call ends, or its agent is no longer to be relied on."""
        try:
            with watch.link.errors():
                while isinstance(message := await watch.call.read(), wire.WatchGroupResponse):
                    was_reliable = watch.state in RELIABLE
                    self._take_later(watch, message.membership)
                    if watch.state in RELIABLE:
                        continue
                    if was_reliable or watch.state != wire.GROUP_STATE_WARMING:
                        return
        except PointsmanError as error:
            logger.debug("the watch of group %s at agent %s ended: %s", self._request.group, watch.addr, error)

    async def _look_for_better(self, watch: _Watch) -> _Watch | None:
        """Wait until an agent that goes before this one is READY; None: this one is no longer there."""
        while True:
            await self._wakeup.wait(LOOK_SECONDS * self._rng.uniform(0.9, 1.0))
            order = self._order()
            if watch.addr not in order:
                return None
            is_ready = watch.state == wire.GROUP_STATE_READY
            before = order[: order.index(watch.addr)] if is_ready else [addr for addr in order if addr != watch.addr]
            better = await self._find(before)
            if better is not None:
                return better

    async def _find(self, addrs: Sequence[str], *, or_warming: bool = False) -> _Watch | None:
        """Open a watch at the first that is READY; else, if wanted, at the first RECOVERED one, or that will be."""
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
        """How far a watch at an agent that is not READY can be relied on; 0: not at all."""
        if watch is None:
            return 0
        if watch.state == wire.GROUP_STATE_RECOVERED:
            return 2 if self._may_rely_on(watch.addr) else 1
        return 1 if watch.state == wire.GROUP_STATE_WARMING else 0

    def _may_rely_on(self, addr: str) -> bool:
        """Return whether a RECOVERED agent is as old in the routes as any other."""
        now = self._clock.monotonic()
        settled = {each for each, at in self._settled_at.items() if at <= now}
        return addr in settled or not settled

    async def _open(self, addr: str) -> _Watch | None:
        link = self._links.to(addr)
        call: _Call = link.groups.WatchGroup(self._request)
        watch: _Watch | None = None
        try:
            async with asyncio.timeout(FIRST_WORD_SECONDS):
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
        """Return the agents in the order in which they are relied on: those that are new to us last."""
        now = self._clock.monotonic()
        return sorted(self._settled_at, key=lambda addr: self._settled_at[addr] > now)

    def _take_later(self, watch: _Watch, membership: wire.GroupMembership) -> None:
        """Take a membership unless a later one of the same process came before it: a notice, or what was queried."""
        latest, revision = watch.latest.revision, membership.revision
        if revision.boot != latest.boot or revision.counter > latest.counter:
            watch.latest = membership
            self._take(watch)

    def _take(self, watch: _Watch) -> None:
        membership = watch.latest
        if membership.state not in RELIABLE:
            return
        if membership.state == wire.GROUP_STATE_RECOVERED and not self._may_rely_on(watch.addr):
            return
        members = Members(tuple(sorted(membership.client_ids)), tuple(sorted(membership.pinned_client_ids)))
        if members != self.members:
            self.members = members
            self._on_change()
