"""ConsumerGroupService: heartbeats of this broker's consumers, and notifications of membership changes.

KeepMembership and WatchGroup work on bytes: with ten thousand consumers they are most of the agent's work.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

from pointsman.clock import Clock
from pointsman.daemon.access.access import ADMINS, CLIENTS, VIEWERS, Caller, Rule, Rules, author, check_group
from pointsman.daemon.rpc.calling_peer import ENDING_SECONDS, Peer
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.daemon.rpc.request_fields import page
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.deadline import finish
from pointsman.v1 import consumer_group_service_pb2 as wire
from pointsman.wire.refusals import NotReady, refuse_if_any
from pointsman_agent.core.group_membership import (
    HELD,
    NOTHING,
    BeatAnswer,
    Cause,
    Changes,
    GroupState,
    MembershipBeat,
    MessageModel,
    Takeover,
)
from pointsman_agent.core.group_rules import GroupLimitReached, GroupRules
from pointsman_agent.core.groups import Groups
from pointsman_agent.core.member_readings import GroupReading, MemberReadings
from pointsman_agent.core.membership_changes import ChangeCounts, MembershipChanges
from pointsman_agent.core.offsets import OffsetKey
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.queue_pins import QueuePin, QueuePinRefused, QueuePins
from pointsman_agent.groups import group_codec, group_queues
from pointsman_agent.groups.group_differences import GroupDifferences
from pointsman_agent.groups.group_queues import GroupQueues, Members
from pointsman_agent.groups.group_timer import GroupTimer
from pointsman_agent.groups.group_watches import GroupWatches
from pointsman_agent.groups.membership_stream import MemberStream
from pointsman_agent.groups.queue_pin_keeper import MemoryQueuePins, QueuePinKeeper, QueuePinStore
from pointsman_agent.groups.silent_streams import SilentStreams
from pointsman_agent.groups.stuck_queues import StuckQueues
from pointsman_agent.groups.tallies import Gauges, GroupCollector, Tallies
from pointsman_agent.rpc.agent_fields import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, cut, name_violations, read_page
from pointsman_agent.rpc.agent_refusals import HeldByOther, LimitExceeded, NotFound, PinRefused, stopping
from pointsman_agent.rpc.client_owners import ClientOwners

READS = Rule(CLIENTS.roles | VIEWERS.roles)
RULES: Rules = {
    "KeepMembership": CLIENTS,
    "LeaveGroups": CLIENTS,
    "WatchGroup": CLIENTS,
    "GetMembership": CLIENTS,
    "GetGroup": READS,
    "ListGroupQueues": READS,
    "ListGroups": READS,
    "PinGroup": ADMINS,
    "PinQueue": ADMINS,
}
SERVICE = wire.DESCRIPTOR.services_by_name["ConsumerGroupService"]

log = logging.getLogger(__name__)


class ConsumerGroups:
    """The service. ``boot`` is random; :meth:`run` must run while it is served."""

    def __init__(
        self,
        rules: GroupRules,
        *,
        clock: Clock,
        boot: int,
        max_watchers: int,
        queues: GroupQueues,
        lock_owner: Callable[[str], str] = lambda _: "",
        pin_store: QueuePinStore | None = None,
    ) -> None:
        """``lock_owner`` returns the identity that took a client's queue locks. ``pin_store``: None, in memory."""
        self.core = Groups(rules, boot=boot, now=clock.monotonic())
        self.owners = ClientOwners(self.core.owner_of, lock_owner)
        self.watches = GroupWatches(self.core, encode=self._encode_membership, clock=clock, max_watchers=max_watchers)
        self.differences = GroupDifferences(self.core, clock=clock)
        self.tallies = Tallies()
        self.readings = MemberReadings()
        self._membership_changes = MembershipChanges()
        self._queues = queues
        self.stuck = StuckQueues(
            self.core.names,
            lambda group: queues.stuck(group, self._readings_of(group)),
            has_readings=lambda: self.readings.count > 0,
            clock=clock,
        )
        self._timer = GroupTimer(self.core, clock=clock, apply=self._apply)
        self._clock = clock
        self._wall = group_codec.WallTime(clock)
        self._expiry = group_codec.duration(rules.expiry)
        self._numbers = itertools.count(1)
        self._streams: set[MemberStream] = set()
        self._silent = SilentStreams(clock=clock)
        self._entered: dict[int, MemberStream] = {}
        self.members_changed = asyncio.Event()
        """Set when a client joined or left a group."""
        self._noted_version = 0
        self.queue_pins_tried = asyncio.Event()
        """Set when they are read, or cannot be read for now. Wait for it before :meth:`recall`, so that no complete
        list is without them; not longer, since recovery must not depend on them."""
        self._pins = QueuePinKeeper(pin_store or MemoryQueuePins(), clock=clock)

    def member_counts(self) -> Mapping[str, int]:
        """Return the number of clients of each group."""
        return self.core.member_counts()

    def known_member_count(self, group: str) -> int | None:
        """Return the number of clients of a group; None: there is none, but one may still come back."""
        count = self.core.member_counts().get(group, 0)
        return None if not count and self.is_warming() else count

    def is_warming(self) -> bool:
        """Return whether some clients may not have sent a heartbeat since the agent started."""
        return self.core.state is GroupState.WARMING

    def stuck_counts(self) -> Mapping[tuple[str, str], int]:
        """Return by group and topic the number of queues in which a member is stuck."""
        return self.stuck.counts()

    def membership_changes(self) -> Mapping[str, ChangeCounts]:
        """Return by group how often its membership changed lately."""
        return self._membership_changes.counts(now=self._clock.monotonic())

    def waiting(self) -> Collection[OffsetKey]:
        """Return the queues in which a member has nothing to do now."""
        return self.readings.waiting()

    def service(self) -> Service:
        """Return the service for the server."""
        return Service(descriptor=SERVICE, servicer=self, rules=RULES, run=self.run, drain=self.drain)

    def is_broadcasting(self, group: str) -> bool:
        """Return whether each member of a group receives all messages, and stores its own offsets."""
        return self.core.membership(group).message_model is MessageModel.BROADCASTING

    def notify_reset(self, group: str) -> None:
        """Notify the members of a group that its offsets here were reset."""
        for number in self.core.streams_of(group).values():
            stream = self._entered.get(number)
            if stream is not None:
                stream.notify_reset(group)

    def collector(self) -> GroupCollector:
        """Return its metrics, to be registered."""
        gauges = Gauges(
            clients=lambda: self.core.client_count,
            subscriptions=lambda: self.core.subscription_count,
            streams=lambda: len(self._streams),
            refused_streams=lambda: self._silent.refused,
            watchers=lambda: self.watches.count,
            held_groups=lambda: self.core.held_count,
            pinned_groups=lambda: self.core.pinned_count,
            notices=lambda: self.watches.sent,
            differences=self.differences,
            readings=self.readings,
            stuck=self.stuck,
        )
        return GroupCollector(self.tallies, gauges)

    async def run(self) -> None:
        """Run timers and wake watchers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._timer.run())
            tasks.create_task(self._silent.run())
            tasks.create_task(self.watches.run())
            tasks.create_task(self.differences.run())
            tasks.create_task(self.stuck.run())

    async def drain(self) -> None:
        """Notify watchers that this agent stops, and end every stream."""
        self.core.drain()
        await asyncio.gather(self.watches.drain(), self._drain_streams())

    def resume(self) -> None:
        """Accept clients again, after :meth:`drain`."""
        self._apply(self.core.resume(now=self._clock.monotonic()))

    async def restore_queue_pins(self) -> None:
        """Read the pins of queues from before the start. See ``queue_pins_tried``."""
        pins = await self._pins.load(failed=self.queue_pins_tried.set)
        self._apply(self.core.put_queue_pins(pins, now=self._clock.monotonic()))
        self.queue_pins_tried.set()

    async def close(self) -> None:
        """Close the store of the pins. The last call."""
        await self._pins.close()

    def recall(self, lists: Mapping[str, Iterable[str]] | None, *, with_offsets: Collection[str]) -> None:
        """See :meth:`Groups.recall`."""
        self._apply(self.core.recall(lists, with_offsets=with_offsets, now=self._clock.monotonic()))

    # --- streams ------------------------------------------------------------------------------------------------

    async def keep_membership(self, requests: AsyncIterator[bytes], write: Write, peer: Peer) -> None:
        """Process the heartbeats of one client."""
        self._refuse_while_draining()
        stream = MemberStream(self, write, peer=peer.addr, caller=peer.caller)
        self._streams.add(stream)
        self._silent.add(stream)
        try:
            await stream.run(requests)
        finally:
            self._streams.discard(stream)
            self._silent.discard(stream)
            self._entered.pop(stream.number, None)
            self.readings.drop(stream.number)
        if self.core.state is GroupState.DRAINING:
            raise Ended(stopping())

    async def watch_group(self, request_bytes: bytes, write: Write, peer: Peer) -> None:
        """Send the membership of a group whenever it changes."""
        request = wire.WatchGroupRequest.FromString(request_bytes)
        group_codec.check_watch(request)
        check_group(peer.caller, request.group)
        self._refuse_while_draining()
        await self.watches.watch(request.group, write, peer=peer.key)
        raise Ended(stopping())

    def enter(self, stream: MemberStream) -> int:
        """Number a stream with its first heartbeat: of two that claim one client, the later claim wins."""
        self._silent.discard(stream)
        number = next(self._numbers)
        self._entered[number] = stream
        return number

    def take_beat(self, beat: MembershipBeat, *, stream: int, peer: str, caller: Caller | None) -> BeatAnswer:
        """Process one heartbeat of a stream. Raises LimitExceeded and PermissionDenied."""
        identity, now = "", self._clock.monotonic()
        if caller is not None:
            self.owners.check(beat.client_id, caller)
            identity = caller.identity
        try:
            answer = self.core.beat(beat, stream=stream, peer=peer, now=now, identity=identity)
        except GroupLimitReached as reached:
            raise _limit_exceeded(reached) from reached
        self.tallies.beats[answer.status] += 1
        for takeover in answer.took_over:
            self._notify_taken_over(takeover, beat.client_id, peer=peer)
        for number, limit in answer.refused:
            self._refuse(number, limit)
        if answer.changes is not NOTHING:
            self._apply(answer.changes)
        else:
            self._timer.reschedule()  # a change may be delayed
            self._note_members()
            if answer is not HELD:
                # Members differ, and what is shown of them may not have changed.
                self.differences.note(each.group for each in beat.groups)
        return answer

    def take_readings(self, readings: Sequence[GroupReading], beat: MembershipBeat, *, stream: int) -> None:
        """Record how the client of a heartbeat reads its queues."""
        named = {each.group for each in beat.groups}
        self.readings.take(stream, readings, groups=named, now=self._clock.monotonic())
        self.stuck.note()

    def take_end(self, client_id: str, *, stream: int, by_us: bool) -> None:
        """Process the end of a stream."""
        self._apply(self.core.end_stream(client_id, stream=stream, by_us=by_us, now=self._clock.monotonic()))

    def encode(self, answer: BeatAnswer) -> bytes:
        """Return the message of a response."""
        return group_codec.beat_answer(answer, expiry=self._expiry).SerializeToString()

    # --- single calls -------------------------------------------------------------------------------------------

    def leave_groups(self, request: wire.LeaveGroupsRequest, peer: Peer) -> wire.LeaveGroupsResponse:
        """Remove a client that leaves. A client whose stream comes from another host is refused."""
        group_codec.check_leave(request)
        for group in request.groups or sorted(self.core.groups_of(request.client_id)):
            check_group(peer.caller, group)
        self.owners.check(request.client_id, peer.caller)
        host = _host(peer.addr)
        for holder in sorted(self.core.holders(request.client_id, request.groups)):
            if _host(holder) != host:
                raise HeldByOther(f"client id {request.client_id}", holder=holder)
        changes = self.core.leave(request.client_id, request.groups, now=self._clock.monotonic())
        self._apply(changes)
        return wire.LeaveGroupsResponse(left=sorted(group for removal in changes.removals for group in removal.groups))

    def get_membership(
        self, request: wire.GetMembershipRequest, caller: Caller | None = None
    ) -> wire.GetMembershipResponse:
        """Return the membership of a group as its watchers are sent it, if the caller does not know it."""
        refuse_if_any(name_violations("group", request.group))
        check_group(caller, request.group)
        known = (request.known.boot, request.known.counter)
        if request.HasField("known") and known == (self.core.boot, self.core.revision(request.group)):
            return wire.GetMembershipResponse()
        return wire.GetMembershipResponse(membership=self._membership(request.group))

    def get_group(self, request: wire.GetGroupRequest, caller: Caller | None = None) -> wire.GetGroupResponse:
        """Return one group, for operators."""
        refuse_if_any(name_violations("group", request.group))
        check_group(caller, request.group)
        members = self.core.members(request.group)
        if not members:
            raise self._unknown(request.group)
        notices = self.core.notices(request.group)
        return wire.GetGroupResponse(
            membership=self._membership(request.group),
            members=[group_codec.member(each, wall=self._wall) for each in members],
            notifies=notices.notify,
            hold_down=group_codec.duration(notices.hold_down),
            watchers=self.watches.count_of(request.group),
            holder=self.core.agreement(request.group).holder,
        )

    async def list_group_queues(
        self, request: wire.ListGroupQueuesRequest, caller: Caller | None = None
    ) -> wire.ListGroupQueuesResponse:
        """Return one page of the queues of a group."""
        refuse_if_any(name_violations("group", request.group))
        limit, after = read_page(group=request.group, page_size=request.page_size, page_token=request.page_token)
        check_group(caller, request.group)
        members = self._readings_of(request.group)
        found = await self._queues.list(
            request.group, members, after=None if after is None else QueueKey(*after[1:]), limit=limit + 1
        )
        queues, token = cut(
            found, limit=limit, place_of=lambda each: (request.group, each.topic, each.reading.queue_id)
        )
        return wire.ListGroupQueuesResponse(
            queues=queues, members=() if after is not None else group_queues.counts(members), next_page_token=token
        )

    def list_groups(self, request: wire.ListGroupsRequest, caller: Caller | None = None) -> wire.ListGroupsResponse:
        """Return one page of the groups that the caller may use: those with members, or with unread messages."""
        loads, with_members = self._queues.loads, set(self.core.names())
        known = with_members.union(name for name, load in loads.items() if load.lag)
        names, token = page(
            sorted(name for name in known if caller is None or caller.may_use(name)),
            size=request.page_size,
            token=request.page_token,
            default=DEFAULT_PAGE_SIZE,
            most=MAX_PAGE_SIZE,
        )
        return wire.ListGroupsResponse(
            groups=[
                group_codec.summary(name, self.core.summary(name) if name in with_members else None, loads.get(name))
                for name in names
            ],
            next_page_token=token,
            state=group_codec.state(self.core.state),
        )

    async def pin_group(self, request: wire.PinGroupRequest, peer: Peer) -> wire.PinGroupResponse:
        """Pin a group, or remove its pin and those of its queues."""
        order = group_codec.pin_order(request)
        if not order.targets and self.core.queue_pins.of(order.group):
            async with self._pins.changing:
                await finish(self._change_queue_pins(self.core.queue_pins.without(order.group)))
        now = self._clock.monotonic()
        until = now + order.seconds
        try:
            if order.targets:
                changes = self.core.pin(order.group, order.targets, until=until, now=now)
            else:
                changes = self.core.unpin(order.group, now=now)
        except GroupLimitReached as reached:
            raise _limit_exceeded(reached) from reached
        self._apply(changes)
        text = (
            "operator assigned all queues of a group to some members"
            if order.targets
            else "operator ended the pin of a group"
        )
        _log_change(text, {"group": order.group, "to": order.targets, "seconds": order.seconds}, order.by, peer)
        held = self.core.membership(order.group)
        return wire.PinGroupResponse(
            pinned_client_ids=held.pinned_client_ids,
            until=self._wall.timestamp(held.pinned_until) if held.pinned_until is not None else None,
        )

    async def pin_queue(self, request: wire.PinQueueRequest, peer: Peer) -> wire.PinQueueResponse:
        """Pin one queue of a group, or remove its pin; stored before it applies."""
        order = group_codec.queue_pin_order(request)
        async with self._pins.changing:
            now = self._clock.monotonic()
            pin = QueuePin(order.queue, order.target, now + order.seconds)
            try:
                if order.target:
                    pins = self.core.check_queue_pin(order.group, pin)
                else:
                    pins = self.core.queue_pins.without(order.group, order.queue)
            except GroupLimitReached as reached:
                raise _limit_exceeded(reached) from reached
            except QueuePinRefused as refused:
                raise PinRefused(str(refused)) from refused
            await finish(self._change_queue_pins(pins))
        text = "operator assigned a queue to a member" if order.target else "operator ended the pin of a queue"
        facts = {"group": order.group, **order.queue._asdict(), "to": order.target, "seconds": order.seconds}
        _log_change(text, facts, order.by, peer)
        held = self.core.membership(order.group)
        current = next((each for each in held.queue_pins if order.queue.is_of(each.queue)), None)
        if current is None:
            return wire.PinQueueResponse()
        return wire.PinQueueResponse(pin=group_codec.queue_pin(current, held.owner_of(current), wall=self._wall))

    # --- steps --------------------------------------------------------------------------------------------------

    async def _change_queue_pins(self, pins: QueuePins) -> None:
        await self._pins.store(pins)
        self._apply(self.core.put_queue_pins(pins, now=self._clock.monotonic()))

    def _apply(self, changes: Changes) -> None:
        """Publish the changes made by a call of the core."""
        self.tallies.take(changes)
        self._membership_changes.note(changes.groups, now=self._clock.monotonic())
        self.watches.notify(changes)
        self.differences.note(changes.groups)
        self.differences.note(group for removal in changes.removals for group in removal.groups)
        self._timer.reschedule()
        self._note_members()
        for removal in changes.removals:
            level = logging.DEBUG if removal.cause is Cause.LEFT else logging.INFO
            facts = {"client_id": removal.client_id, "cause": removal.cause.value, "groups": removal.groups}
            log.log(level, "client was removed from its groups", extra={"facts": facts})
        if changes.is_state:
            log.info(
                "state of the consumer groups changed",
                extra={"facts": {"state": self.core.state.value, "clients": self.core.client_count}},
            )

    def _note_members(self) -> None:
        if self.core.member_version != self._noted_version:
            self._noted_version = self.core.member_version
            self.members_changed.set()

    async def _drain_streams(self) -> None:
        streams = list(self._streams)
        for stream in streams:
            stream.drain()
        if streams:
            await asyncio.wait({stream.task for stream in streams}, timeout=ENDING_SECONDS)
        for stream in list(self._streams):
            stream.cut_off()

    def _notify_taken_over(self, takeover: Takeover, client_id: str, *, peer: str) -> None:
        self.tallies.takeovers += 1
        older = self._entered.get(takeover.stream)
        if older is None:
            return
        older.take_over(takeover.answer)
        is_foreign = _host(older.peer) != _host(peer)
        log.log(
            logging.WARNING if is_foreign else logging.INFO,
            "client id taken over by a later stream",
            extra={"facts": {"client_id": client_id, "from": older.peer, "by": peer}},
        )

    def _refuse(self, number: int, reached: GroupLimitReached) -> None:
        stream = self._entered.get(number)
        if stream is not None:
            stream.refuse(_limit_exceeded(reached))
            facts = {"peer": stream.peer, "limit": reached.limit, "bound": reached.bound}
            log.warning("limit reached; a stream of the peer with the most streams was ended", extra={"facts": facts})

    def _refuse_while_draining(self) -> None:
        """Refuse consumers while the broker is drained, although its agent runs. Raises NotReady."""
        if self.core.state is GroupState.DRAINING:
            raise stopping()

    def _unknown(self, group: str) -> NotFound | NotReady:
        if self.core.state_of(group) is GroupState.WARMING:
            text = f"group {group} has no known members; this agent is warming up, retry"
            return NotReady(text, state=self.core.state.value)
        return NotFound(f"group {group} has no members here")

    def _readings_of(self, group: str) -> Members:
        streams = self.core.streams_of(group)
        return {client_id: self.readings.of(stream, group) for client_id, stream in streams.items()}

    def _membership(self, group: str) -> wire.GroupMembership:
        return group_codec.membership(self.core.membership(group), boot=self.core.boot, wall=self._wall)

    def _encode_membership(self, group: str) -> bytes:
        return wire.WatchGroupResponse(membership=self._membership(group)).SerializeToString()


def _log_change(text: str, facts: Mapping[str, object], by: str, peer: Peer) -> None:
    who = author(by, peer.caller)
    claimed = {"claimed_by": who.claimed} if who.claimed else {}
    log.info(text, extra={"facts": {**facts, "by": who.name, **claimed, "peer": peer.addr}})


def _limit_exceeded(reached: GroupLimitReached) -> LimitExceeded:
    return LimitExceeded(reached.limit, reached.bound, field=reached.field, value=reached.value)


def _host(peer: str) -> str:
    return peer.rpartition(":")[0]
