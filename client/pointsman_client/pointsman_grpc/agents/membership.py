"""Membership of a consumer in its group, at the agents of all brokers that it reads from.

The consumer sends heartbeats to every agent, each over its own stream, so every agent has the complete list of members.
It watches the list of one agent (:mod:`group_watch`). A consumer of topics on 300 brokers has 300 mostly idle streams,
with a heartbeat every 30 s, and one watch.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import grpc

from pointsman.clock import Clock
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman_client.aio import Wakeup, deadline_in, end_tasks, start_task
from pointsman_client.core.consumer_reading import ConsumerReading
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import DifferingMember, Members
from pointsman_client.errors import PointsmanError, RequestRejectedError
from pointsman_client.pointsman_grpc.agents.broker_agents import agent_addrs, agent_of_queues
from pointsman_client.pointsman_grpc.agents.group_settings import DifferenceLog, difference_names
from pointsman_client.pointsman_grpc.agents.group_watch import GroupWatch
from pointsman_client.pointsman_grpc.agents.member_stream import MemberState, MemberStream
from pointsman_client.pointsman_grpc.links import AgentLinks
from pointsman_client.ports.coordination import RoutedBrokers

POLL_INTERVAL_SECONDS = (20.0, 30.0)
"""Range of the interval between checks of the routes for agents, in addition to notified changes."""
FIRST_POLL_SECONDS = 0.5
"""The interval while no agent is known, and during startup."""
STARTUP_SECONDS = 10.0
LINGER_SECONDS = 15.0
"""How long a link stays open, about, after its agent was removed from all routes."""
LEAVE_SECONDS = 1.5
ENDING_SECONDS = 0.5
"""With ``LEAVE_SECONDS``: the two seconds that :meth:`AgentMembership.leave` may take."""

BROADCASTING = wire.MESSAGE_MODEL_BROADCASTING

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Joined:
    stream: MemberStream
    task: asyncio.Task[None]


class AgentMembership:
    """See :class:`~pointsman_client.ports.coordination.GroupMembership`.

    ``subscriptions`` returns the current tag expression of each topic, ``settings`` are what else must be equal in the
    group (None: not stated, as by a client of an earlier version), ``reading`` returns how this client reads some
    queues (None: it has not started). ``on_change`` is called when :attr:`members` changes,
    ``on_agent_broken(addr)`` when the connection to an agent breaks, since the agent may have lost its state.
    ``on_agent_joined()`` is called when an agent accepts this client, for the first time or again. ``on_reset`` is
    called with a predicate of queues whose offsets an operator may have reset. A broadcasting consumer sends heartbeats
    but watches no group, so its :attr:`members` stays None, except while it stands aside.

    This consumer owns the links, and closes those to agents that are no longer in any route.
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
        settings: wire.MemberSettings | None,
        subscriptions: Callable[[], Mapping[str, str]],
        reading: Callable[[Callable[[MessageQueue], bool]], ConsumerReading | None] = lambda _: None,
        on_change: Callable[[], None],
        clock: Clock,
        rng: random.Random,
        on_agent_broken: Callable[[str], None] = lambda _addr: None,
        on_agent_joined: Callable[[], None] = lambda: None,
        on_reset: Callable[[Callable[[MessageQueue], bool]], None] = lambda _: None,
    ) -> None:
        self._brokers = client
        self._links = links
        self._group = group
        self._client_id = client_id
        self._consume_type = consume_type
        self._message_model = message_model
        self._settings = settings
        self._subscriptions = subscriptions
        self._reading = reading
        self._on_change = on_change
        self._on_agent_broken = on_agent_broken
        self._on_agent_joined = on_agent_joined
        self._on_reset = on_reset
        self._clock = clock
        self._rng = rng
        self._watch = GroupWatch(
            links, group=group, client_id=client_id, on_change=self._update_members, clock=clock, rng=rng
        )
        self._wakeup = Wakeup(clock)
        self._joined: dict[str, _Joined] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._members: Members | None = None
        self._member_at: set[str] = set()
        self._was_conflicting = False
        self._differences = DifferenceLog(group, client_id)
        self._addrs: tuple[str, ...] = ()
        self._was_taken_over = False
        self._has_left = False
        self._starting_until = clock.monotonic()
        """Until then, agents are assumed to be new only to this client, not to the group."""

    # For the consumer

    async def start(self) -> None:
        """See :meth:`GroupMembership.start`; a second call changes nothing."""
        if self._tasks or self._has_left:
            return
        self._starting_until = self._clock.monotonic() + STARTUP_SECONDS
        self._update_agents()
        self._tasks["agents"] = start_task(self._follow_routes(), name=f"pointsman-agents-{self._group}")

    @property
    def members(self) -> Members | None:
        """See :attr:`GroupMembership.members`. Without this client while another process uses its client id."""
        return self._members

    @property
    def is_conflicting(self) -> bool:
        """Whether other members have different subscriptions, so that some messages reach no member."""
        return any(each.stream.is_conflicting for each in self._joined.values())

    @property
    def is_taken_over(self) -> bool:
        """Whether another process uses this client id; this one is then not a member and gets no queues."""
        return any(each.stream.state is MemberState.TAKEN_OVER for each in self._joined.values())

    async def refresh_members(self) -> None:
        """See :meth:`GroupMembership.refresh_members`."""
        await self._watch.refresh()

    def subscriptions_changed(self) -> None:
        """See :meth:`GroupMembership.subscriptions_changed`."""
        self._wakeup.wake()
        for each in self._joined.values():
            each.stream.heartbeat_now()

    def routes_changed(self) -> None:
        """See :meth:`GroupMembership.routes_changed`."""
        self._wakeup.wake()

    def problems(self) -> Sequence[str]:
        """See :meth:`GroupMembership.problems`."""
        if not self._joined:
            return ["no agent is known for the subscribed topics"]
        if self.is_taken_over:
            return [f"another process uses client id {self._client_id}"]
        if not self._member_at:
            errors = {addr: str(each.stream.error or each.stream.state.value) for addr, each in self._joined.items()}
            return ["not a member at any agent: " + "; ".join(f"{addr}: {error}" for addr, error in errors.items())]
        members = self._members
        if members is None:
            is_needed = self._message_model != BROADCASTING
            return ["no agent has sent a reliable list of the group's members yet"] if is_needed else []
        standing = members.standing_of(self._client_id)
        if standing is not None and standing.stands_aside:
            differs = ", ".join(standing.differences)
            return [f"it holds no queues, because it differs from {members.holder} in: {differs}"]
        return []

    def describe(self) -> Mapping[str, object]:
        """See :meth:`GroupMembership.describe`."""
        members = self._members
        return {
            "members": list(members.client_ids) if members is not None else None,
            "pinned": list(members.pinned) if members is not None else [],
            "queuePins": {str(queue): owner for queue, owner in (members.queue_pins if members is not None else ())},
            "oldestMember": members.holder if members is not None else "",
            "strategyInForce": members.strategy.text if members is not None and members.strategy is not None else None,
            "standsAside": members is not None and members.stands_aside(self._client_id),
            "differing": {
                each.client_id: {
                    "in": list(each.differences),
                    "strategy": each.strategy,
                    "standsAside": each.stands_aside,
                }
                for each in (members.differing if members is not None else ())
            },
            "conflictingSubscriptions": self.is_conflicting,
            "takenOver": self.is_taken_over,
            "watchedAgent": self._watch.watched,
            "agents": {
                addr: {"state": each.stream.state.value, "error": str(each.stream.error or "")}
                for addr, each in self._joined.items()
            },
        }

    async def leave(self) -> None:
        """See :meth:`GroupMembership.leave`. A process that took over this client id stays a member."""
        self._has_left = True
        tasks = [*self._tasks.values(), *(each.task for each in self._joined.values())]
        addrs = [addr for addr, each in self._joined.items() if each.stream.state is not MemberState.TAKEN_OVER]
        self._tasks, self._joined = {}, {}
        # Streams end first: a heartbeat after the leave would join again.
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
        removed_at: dict[str, float] = {}
        while True:
            seconds = FIRST_POLL_SECONDS if self._is_starting else self._rng.uniform(*POLL_INTERVAL_SECONDS)
            await self._wakeup.wait(seconds)
            now = self._clock.monotonic()
            removed_at |= dict.fromkeys(self._update_agents(), now)
            removed_at = {addr: at for addr, at in removed_at.items() if addr not in self._joined}
            # Links are kept for a while: queues of the removed broker are being committed and unlocked there.
            for addr in [addr for addr, at in removed_at.items() if now - at >= LINGER_SECONDS]:
                del removed_at[addr]
                await self._links.remove(addr, timeout_seconds=ENDING_SECONDS)

    def _update_agents(self) -> list[str]:
        """Start and stop streams so that each routed agent has one, and start the watch; return the removed agents."""
        self._addrs = addrs = agent_addrs(self._brokers.brokers_of(tuple(self._subscriptions())))
        is_starting = self._is_starting
        removed = [addr for addr in self._joined if addr not in addrs]
        for addr in removed:
            self._joined.pop(addr).task.cancel()
        for addr in addrs:
            joined = self._joined.get(addr)
            if joined is None or joined.task.done():
                self._joined[addr] = self._join(addr)
        if self._message_model != BROADCASTING:
            self._watch.set_agents(addrs, are_settled=is_starting)
            watching = self._tasks.get("watch")
            if watching is None or watching.done():
                self._tasks["watch"] = start_task(self._watch.run(), name=f"pointsman-group-watch-{self._group}")
        self._check_streams()
        return removed

    @property
    def _is_starting(self) -> bool:
        return not self._joined or self._clock.monotonic() < self._starting_until

    def _join(self, addr: str) -> _Joined:
        stream = MemberStream(
            self._links,
            addr,
            group=self._group,
            build_heartbeat=self._build_heartbeat,
            reading=lambda: self._reading_at(addr),
            on_change=self._check_streams,
            on_broken=self._on_agent_broken,
            on_reset=self._check_resets,
            clock=self._clock,
            rng=self._rng,
        )
        return _Joined(stream, start_task(stream.run(), name=f"pointsman-member-{self._group}-{addr}"))

    def _reading_at(self, addr: str) -> ConsumerReading | None:
        is_here = dict[tuple[str, str], bool]()

        def is_wanted(queue: MessageQueue) -> bool:
            key = queue.broker_key
            if key not in is_here:
                is_here[key] = agent_of_queues(self._brokers.broker(*key)) == addr
            return is_here[key]

        return self._reading(is_wanted)

    def _check_resets(self, addr: str) -> None:
        """Check the queues whose offsets the agent at ``addr`` may have, also in place of the master's."""
        if self._message_model != BROADCASTING:
            self._on_reset(lambda queue: addr in agent_addrs(filter(None, [self._brokers.broker(*queue.broker_key)])))

    def _build_heartbeat(self) -> wire.KeepMembershipRequest:
        group = wire.GroupSubscription(
            group=self._group,
            consume_type=self._consume_type,
            message_model=self._message_model,
            subscriptions=[
                wire.Subscription(topic=topic, expression=expression)
                for topic, expression in sorted(self._subscriptions().items())
            ],
            settings=self._settings,
        )
        return wire.KeepMembershipRequest(client_id=self._client_id, groups=[group])

    def _check_streams(self) -> None:
        is_taken_over = self.is_taken_over
        if is_taken_over and not self._was_taken_over:
            logger.error(
                "another process uses client id %s; this process is no longer a member of group %s; "
                "give each process its own client id",
                self._client_id,
                self._group,
            )
        elif self._was_taken_over and not is_taken_over:
            logger.warning("client id %s is free again; rejoining group %s", self._client_id, self._group)
        self._was_taken_over = is_taken_over
        member_at = {addr for addr, each in self._joined.items() if each.stream.state is MemberState.MEMBER}
        joined_at, self._member_at = member_at - self._member_at, member_at
        if joined_at:
            self._on_agent_joined()
        for addr in joined_at:
            self._check_resets(addr)  # a notice may be lost with the stream before
        if self._watch.watched in joined_at and self._message_model != BROADCASTING:
            # Its list lacked this client until now. With notices switched off, only a query returns the new list.
            if "refresh" in self._tasks:
                self._tasks["refresh"].cancel()
            self._query_members()
        self._update_members()

    def _query_members(self) -> None:
        self._tasks["refresh"] = start_task(self._watch.refresh(), name=f"pointsman-members-{self._group}")

    def _check_conflict(self) -> None:
        """Log a conflict that no member is named for: agents are too old to, or this broadcasting member is the oldest.

        A heartbeat's response may be earlier than the list, which names members and differences.
        """
        if self._message_model == BROADCASTING:
            is_stated = self._own_standing() is not None
        else:
            is_stated = self._members is None or self._members.holder != ""
        is_conflicting = self.is_conflicting and not is_stated
        if is_conflicting and not self._was_conflicting:
            if self._message_model == BROADCASTING:
                logger.warning("members of group %s have different message models", self._group)
            else:
                logger.warning(
                    "members of group %s have different subscriptions or message models, so some messages may reach "
                    "no member; give all members the same topics and tags",
                    self._group,
                )
        elif self._was_conflicting and not is_conflicting and not is_stated:
            logger.warning("members of group %s have the same settings again", self._group)
        self._was_conflicting = is_conflicting

    def _update_members(self) -> None:
        self._set_members(self._listed())
        self._check_conflict()

    def _listed(self) -> Members | None:
        """Return the members as this client may use them; those until now, if the list is from before it joined."""
        if self._message_model == BROADCASTING:
            return self._own_standing()
        members, watched = self._watch.members, self._joined.get(self._watch.watched)
        state = watched.stream.state if watched is not None else MemberState.JOINING
        if members is None:
            return self._members
        if state is MemberState.TAKEN_OVER:
            members = _without(members, self._client_id)  # the entry is the other process
        elif not members.has(self._client_id) and state is not MemberState.REFUSED:
            # The agent may have sent it before it accepted this client, and it arrived after.
            if state is MemberState.MEMBER and ("refresh" not in self._tasks or self._tasks["refresh"].done()):
                self._query_members()
            return self._members
        return members

    def _set_members(self, members: Members | None) -> None:
        if members != self._members:
            self._members = members
            self._differences.note(members or Members(()))
            self._on_change()

    def _own_standing(self) -> Members | None:
        """Return, for a broadcasting member, how it differs at the first agent where it is a member; None: it does not.

        It shares nothing with other members, so a heartbeat's response is early enough.
        """
        streams = (self._joined[addr].stream for addr in self._addrs if addr in self._joined)
        own = next((each.own_difference for each in streams if each.state is MemberState.MEMBER), None)
        if own is None:
            return None
        differing = DifferingMember(self._client_id, difference_names(own.differences), own.stands_aside)
        return Members((), holder=own.holder, differing=(differing,))

    async def _leave_at(self, addr: str) -> None:
        link = self._links.to(addr)
        request = wire.LeaveGroupsRequest(client_id=self._client_id, groups=[self._group])
        deadline = deadline_in(LEAVE_SECONDS)
        try:
            await link.call(link.groups.LeaveGroups, request, deadline=deadline)
        except RequestRejectedError as refusal:
            # Another process took over the client id.
            level = logging.INFO if refusal.status is grpc.StatusCode.FAILED_PRECONDITION else logging.WARNING
            logger.log(level, "could not leave group %s at agent %s: %s", self._group, addr, refusal)
        except PointsmanError as error:
            logger.info(
                "could not leave group %s at agent %s; the membership will expire there: %s", self._group, addr, error
            )


def _without(members: Members, client_id: str) -> Members:
    return replace(
        members,
        client_ids=tuple(each for each in members.client_ids if each != client_id),
        pinned=tuple(each for each in members.pinned if each != client_id),
        differing=tuple(each for each in members.differing if each.client_id != client_id),
    )
