"""One consumer's place in its group, kept at the agents of all brokers that it reads from.

Every agent is told, over a stream of its own, so that whichever of them the members listen to has all of them; one
agent is listened to (:mod:`group_watch`). So a consumer of topics on 300 brokers keeps 300 quiet streams, a beat each
half minute, and one watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc

from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.clock import Clock
from pointsman_client.aio import Wakeup, end_tasks, start_task
from pointsman_client.consumer.agents.broker_agents import RoutedBrokers, agent_addrs
from pointsman_client.consumer.agents.group_watch import GroupWatch
from pointsman_client.consumer.agents.member_stream import MemberState, MemberStream
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import PointsmanError, RequestRejectedError
from pointsman_client.rpc.links import AgentLinks

LOOK_SECONDS = (20.0, 30.0)
"""Between looks at which agents the routes name, when nobody says that they changed."""
FIRST_LOOK_SECONDS = 0.5
"""The same while none is known, and as long as the first routes come in."""
YOUNG_SECONDS = 10.0
LINGER_SECONDS = 15.0
"""A link lives on so long, about, when no route names its agent any more."""
LEAVE_SECONDS = 1.5
ENDING_SECONDS = 0.5
"""Together the two seconds that a leave may take."""

BROADCASTING = wire.MESSAGE_MODEL_BROADCASTING

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Joined:
    stream: MemberStream
    task: asyncio.Task[None]


class AgentMembership:
    """See :class:`~pointsman_client.consumer.coordination.GroupMembership`.

    ``subscriptions`` gives the tag expression of each topic as it is now. ``on_change`` is called when
    :attr:`members` differs; ``on_agent_broken(addr)`` when the connection to an agent broke, which may have lost what
    it knew, and ``on_agent_joined()`` when one took this client in, for the first time or again. Groups that broadcast
    are beaten for and not watched: :attr:`members` stays None.

    The links are this consumer's own: those to agents that no route names any more are closed.
    """

    def __init__(
        self,
        client: RoutedBrokers,
        links: AgentLinks,
        *,
        group: str,
        client_id: str,
        consume_type: wire.ConsumeType.ValueType,
        message_model: wire.MessageModel.ValueType,
        subscriptions: Callable[[], Mapping[str, str]],
        on_change: Callable[[], None],
        clock: Clock,
        rng: random.Random,
        on_agent_broken: Callable[[str], None] = lambda _addr: None,
        on_agent_joined: Callable[[], None] = lambda: None,
    ) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._client_id = client_id
        self._consume_type = consume_type
        self._message_model = message_model
        self._subscriptions = subscriptions
        self._on_change = on_change
        self._on_agent_broken = on_agent_broken
        self._on_agent_joined = on_agent_joined
        self._clock = clock
        self._rng = rng
        self._watch = GroupWatch(
            links, group=group, client_id=client_id, on_change=self._look_at_members, clock=clock, rng=rng
        )
        self._wakeup = Wakeup(clock)
        self._joined: dict[str, _Joined] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._members: Members | None = None
        self._member_at: set[str] = set()
        self._was_conflicting = False
        self._was_taken_over = False
        self._has_left = False
        self._young_until = clock.monotonic()
        """Until then agents are new to us alone, and not to the group."""

    # What a consumer asks

    async def start(self) -> None:
        """See :meth:`GroupMembership.start`; a second call changes nothing."""
        if self._tasks or self._has_left:
            return
        self._young_until = self._clock.monotonic() + YOUNG_SECONDS
        self._look_at_routes()
        self._tasks["agents"] = start_task(self._follow_routes(), name=f"pointsman-agents-{self._group}")

    @property
    def members(self) -> Members | None:
        """See :attr:`GroupMembership.members`. This client is not in it while another process holds its client id."""
        return self._members

    @property
    def is_conflicting(self) -> bool:
        """Whether other members subscribe to something else, so that nobody gets all messages."""
        return any(each.stream.is_conflicting for each in self._joined.values())

    @property
    def is_taken_over(self) -> bool:
        """Whether another process uses this client id: this one is no member then, and gets no queues."""
        return any(each.stream.state is MemberState.TAKEN_OVER for each in self._joined.values())

    async def refresh_members(self) -> None:
        """See :meth:`GroupMembership.refresh_members`."""
        await self._watch.refresh()

    def subscriptions_changed(self) -> None:
        """See :meth:`GroupMembership.subscriptions_changed`."""
        self._wakeup.wake()
        for each in self._joined.values():
            each.stream.beat_now()

    def routes_changed(self) -> None:
        """Look at once which agents there are."""
        self._wakeup.wake()

    def describe(self) -> Mapping[str, object]:
        """See :meth:`GroupMembership.describe`."""
        members = self._members
        return {
            "members": list(members.client_ids) if members is not None else None,
            "pinned": list(members.pinned) if members is not None else [],
            "conflictingSubscriptions": self.is_conflicting,
            "takenOver": self.is_taken_over,
            "watchedAgent": self._watch.watched,
            "agents": {
                addr: {"state": each.stream.state.value, "error": str(each.stream.error or "")}
                for addr, each in self._joined.items()
            },
        }

    async def leave(self) -> None:
        """See :meth:`GroupMembership.leave`. Whoever took this client id over stays a member."""
        self._has_left = True
        tasks = [*self._tasks.values(), *(each.task for each in self._joined.values())]
        addrs = [addr for addr, each in self._joined.items() if each.stream.state is not MemberState.TAKEN_OVER]
        self._tasks, self._joined = {}, {}
        # First the streams: a beat behind the leave would join again.
        await end_tasks(tasks, timeout_seconds=ENDING_SECONDS)
        leaves = [asyncio.create_task(self._leave_at(addr)) for addr in addrs]
        try:
            if leaves:
                await asyncio.wait(leaves, timeout=LEAVE_SECONDS)
        finally:
            for late in leaves:
                late.cancel()

    # Steps

    async def _follow_routes(self) -> None:
        gone_at: dict[str, float] = {}
        while True:
            seconds = FIRST_LOOK_SECONDS if self._is_young else self._rng.uniform(*LOOK_SECONDS)
            await self._wakeup.wait(seconds)
            now = self._clock.monotonic()
            gone_at |= dict.fromkeys(self._look_at_routes(), now)
            gone_at = {addr: at for addr, at in gone_at.items() if addr not in self._joined}
            # Not yet: queues of its broker are committed and unlocked there now.
            for addr in [addr for addr, at in gone_at.items() if now - at >= LINGER_SECONDS]:
                del gone_at[addr]
                await self._links.forget(addr, timeout_seconds=ENDING_SECONDS)

    def _look_at_routes(self) -> list[str]:
        """Have a stream to each agent that the routes name, to no other, and the watch; return who is not named now."""
        addrs = agent_addrs(self._brokers.brokers_of(tuple(self._subscriptions())))
        is_young = self._is_young
        gone = [addr for addr in self._joined if addr not in addrs]
        for addr in gone:
            self._joined.pop(addr).task.cancel()
        for addr in addrs:
            joined = self._joined.get(addr)
            if joined is None or joined.task.done():
                self._joined[addr] = self._join(addr)
        if self._message_model != BROADCASTING:
            self._watch.use(addrs, are_settled=is_young)
            watching = self._tasks.get("watch")
            if watching is None or watching.done():
                self._tasks["watch"] = start_task(self._watch.run(), name=f"pointsman-group-watch-{self._group}")
        self._look_at_streams()
        return gone

    @property
    def _is_young(self) -> bool:
        return not self._joined or self._clock.monotonic() < self._young_until

    def _join(self, addr: str) -> _Joined:
        stream = MemberStream(
            self._links,
            addr,
            group=self._group,
            beat=self._beat,
            on_news=self._look_at_streams,
            on_broken=self._on_agent_broken,
            clock=self._clock,
            rng=self._rng,
        )
        return _Joined(stream, start_task(stream.run(), name=f"pointsman-member-{self._group}-{addr}"))

    def _beat(self) -> wire.KeepMembershipRequest:
        group = wire.GroupSubscription(
            group=self._group,
            consume_type=self._consume_type,
            message_model=self._message_model,
            subscriptions=[
                wire.Subscription(topic=topic, expression=expression)
                for topic, expression in sorted(self._subscriptions().items())
            ],
        )
        return wire.KeepMembershipRequest(client_id=self._client_id, groups=[group])

    def _look_at_streams(self) -> None:
        is_conflicting, is_taken_over = self.is_conflicting, self.is_taken_over
        if is_conflicting and not self._was_conflicting:
            logger.warning(
                "members of group %s subscribe to different topics or tags, so some messages reach nobody: "
                "let all members subscribe to the same",
                self._group,
            )
        elif self._was_conflicting and not is_conflicting:
            logger.warning("members of group %s subscribe to the same again", self._group)
        if is_taken_over and not self._was_taken_over:
            logger.error(
                "another process uses the client id %s: this one is no member of group %s any more; "
                "give each process an instance name of its own",
                self._client_id,
                self._group,
            )
        elif self._was_taken_over and not is_taken_over:
            logger.warning("the client id %s is free again: joining group %s", self._client_id, self._group)
        self._was_conflicting, self._was_taken_over = is_conflicting, is_taken_over
        member_at = {addr for addr, each in self._joined.items() if each.stream.state is MemberState.MEMBER}
        joined_at, self._member_at = member_at - self._member_at, member_at
        if joined_at:
            self._on_agent_joined()
        if self._watch.watched in joined_at and self._message_model != BROADCASTING:
            # Its list lacked this client until now, and a group without notices learns of that by a query alone.
            if "refresh" in self._tasks:
                self._tasks["refresh"].cancel()
            self._tasks["refresh"] = start_task(self._watch.refresh(), name=f"pointsman-members-{self._group}")
        self._look_at_members()

    def _look_at_members(self) -> None:
        members, watched = self._watch.members, self._joined.get(self._watch.watched)
        state = watched.stream.state if watched is not None else MemberState.JOINING
        if members is None:
            return
        if state is MemberState.TAKEN_OVER:
            members = _without(members, self._client_id)  # it has the other process under our name
        elif self._client_id not in members.client_ids and state is not MemberState.REFUSED:
            return  # from before we were heard there; in a moment it has us
        if members != self._members:
            self._members = members
            self._on_change()

    async def _leave_at(self, addr: str) -> None:
        link = self._links.to(addr)
        request = wire.LeaveGroupsRequest(client_id=self._client_id, groups=[self._group])
        deadline = asyncio.get_running_loop().time() + LEAVE_SECONDS
        try:
            await link.call(link.groups.LeaveGroups, request, deadline=deadline)
        except RequestRejectedError as refusal:
            # Another host has the client id meanwhile.
            level = logging.INFO if refusal.status is grpc.StatusCode.FAILED_PRECONDITION else logging.WARNING
            logger.log(level, "group %s was not left at agent %s: %s", self._group, addr, refusal)
        except PointsmanError as error:
            logger.info("group %s was not left at agent %s, its silence will tell: %s", self._group, addr, error)


def _without(members: Members, client_id: str) -> Members:
    client_ids, pinned = (
        tuple(each for each in ids if each != client_id) for ids in (members.client_ids, members.pinned)
    )
    return Members(client_ids, pinned)
