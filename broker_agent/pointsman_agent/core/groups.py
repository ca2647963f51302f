"""Members of consumer groups: RocketMQ's ``ConsumerManager``, by client id instead of by connection.

Each heartbeat of a stream names all groups that the stream holds for its client. A member is a client in a group. Of
two streams that name one client in one group, the later one holds the member; the earlier one keeps the groups that the
later one does not name (RocketMQ's clients use one client id for all groups of a process). A member is removed
immediately when it leaves, after a grace period when its stream ended, and when its stream was silent for *longer* than
the expiry, even if it is open. Each change that members see gets the next number of one counter for all groups, so
within a boot a later change always has a higher number, even if groups are removed and created again.

Limits apply to the complete agent. When one is reached, the peer (a connection) that holds most is refused and the
others are served: its latest streams are ended, unless the requesting peer would then hold as much.

``now`` is monotonic seconds of the caller's clock. Only :meth:`Groups.advance` acts on time; the owner of the clock
calls it at :meth:`Groups.next_due`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pointsman_agent.core.client_stream import ClientStream, StreamsOfPeer, answer_of, weight, weight_of
from pointsman_agent.core.consumer_group import ConsumerGroup, Pin
from pointsman_agent.core.group_membership import (
    BY_CONFIG,
    NOTHING,
    TAKEN_OVER,
    Agreement,
    BeatAnswer,
    Cause,
    Changes,
    GroupState,
    GroupSubscription,
    GroupSummary,
    MemberFacts,
    Membership,
    MembershipBeat,
    MessageModel,
    Removal,
    Takeover,
)
from pointsman_agent.core.group_rules import GroupLimitReached, GroupRules, NoticeRules
from pointsman_agent.core.queue_pins import QueuePin, QueuePinRefused, QueuePins
from pointsman_agent.core.recovery import Recovery


class Groups:
    """All clients and groups. ``boot`` is the random part of every revision of this process."""

    def __init__(self, rules: GroupRules, *, boot: int, now: float) -> None:
        self.boot = boot
        self.state = GroupState.WARMING
        self.member_version = 0
        """Rises when a client joins or leaves a group."""
        self._recovery = Recovery()
        self._rules = rules
        self._ready_at = now + rules.warm_up
        self._next_scan = now + rules.scan_interval
        self._counter = 0
        self._state_counter = 0
        self._clients: dict[str, dict[int, ClientStream]] = {}
        self._peers: dict[str, StreamsOfPeer] = {}
        self._stream_count = 0
        self._subscription_count = 0
        self._groups: dict[str, ConsumerGroup] = {}
        self._graces: dict[tuple[str, int], float] = {}
        self._held: set[str] = set()
        self._pinned: set[str] = set()
        self.queue_pins = QueuePins()
        """Of all groups, also of those without members."""
        self._lenient_until = now
        self._due = now

    # --- calls by clients and operators -------------------------------------------------------------------------

    def beat(self, beat: MembershipBeat, *, stream: int, peer: str, now: float, identity: str = "") -> BeatAnswer:
        """Record a heartbeat. ``stream`` is numbered by first heartbeats, rising; ``peer`` is its connection.

        ``identity``: the authenticated caller, see :meth:`owner_of`. Raises GroupLimitReached.
        """
        streams = self._clients.get(beat.client_id, {})
        own = streams.get(stream)
        if own is not None and own.beat is beat:
            own.last_beat_at = now
            return answer_of(own)
        lost = tuple(sorted(each.group for each in beat.groups if self._holder_of(beat.client_id, each.group) > stream))
        if lost and len(lost) == len(beat.groups):
            return TAKEN_OVER if own is None else self._give_up(own, now=now)
        named = [each for each in beat.groups if each.group not in lost]
        refused = self._make_room(beat.client_id, own, named, peer=peer)
        removals = self._remove(refused, Cause.LIMIT)
        own = self._clients.get(beat.client_id, {}).get(stream)
        if own is None:
            own = self._open(ClientStream(beat.client_id, stream, peer, beat, now, identity=identity))
        self._graces.pop(own.key, None)
        own.is_connected, own.last_beat_at = True, now
        touched, took_over = self._join(own, named, now=now)
        own.beat = None if lost else beat
        touched |= {name for removal in removals for name in removal.groups}
        changed = self._recover({each.group for each in named}, beat.client_id, now=now)
        changed |= self._settle_all(touched, now=now)
        return answer_of(
            own,
            lost=lost,
            changes=Changes(changed, tuple(removals)) if changed or removals else NOTHING,
            took_over=took_over,
            refused=tuple((each.number, reached) for each, reached in refused.items() if each.is_connected),
        )

    def end_stream(self, client_id: str, *, stream: int, by_us: bool, now: float) -> Changes:
        """Record the end of a stream. ``by_us``: this agent ended it, so its client expires by silence only."""
        held = self._clients.get(client_id, {}).get(stream)
        if held is None:
            return NOTHING
        held.is_connected = False
        if by_us:
            return NOTHING
        ends_at = max(now + self._rules.stream_grace, self._lenient_until)
        if ends_at <= now:
            return self._remove_and_settle([held], Cause.STREAM_ENDED, now=now)
        self._graces[held.key] = ends_at
        self._due = min(self._due, ends_at)
        return NOTHING

    def holders(self, client_id: str, groups: Iterable[str] = ()) -> set[str]:
        """Return peers whose open streams hold a client in these groups, or in any; empty: none."""
        named = set(groups)
        streams = [each for each in self._clients.get(client_id, {}).values() if each.is_connected]
        return {each.peer for each in streams if not named or named & each.groups.keys()}

    def owner_of(self, client_id: str) -> str:
        """Return the identity whose streams hold a client id; empty: unknown, or there are none."""
        return next((each.identity for each in self._clients.get(client_id, {}).values()), "")

    def groups_of(self, client_id: str) -> set[str]:
        """Return the groups that a client is in, or was in before this agent's start and has not returned to."""
        streams = self._clients.get(client_id, {}).values()
        return {*self._recovery.groups_missing(client_id), *(group for stream in streams for group in stream.groups)}

    def leave(self, client_id: str, groups: Iterable[str] = (), *, now: float) -> Changes:
        """Remove a client from these groups, or from all until its next heartbeat."""
        streams = list(self._clients.get(client_id, {}).values())
        named = set(groups)
        left_for_good = named or self.groups_of(client_id)
        recovered = self._recover(left_for_good, client_id, now=now)
        if not named:
            changes = self._remove_and_settle(streams, Cause.LEFT, now=now) if streams else NOTHING
            return replace(changes, groups=changes.groups | recovered) if recovered else changes
        left: list[str] = []
        for stream in streams:
            of_stream = sorted(named & stream.groups.keys())
            if of_stream:
                stream.beat = None
                self._take_out(stream, of_stream)
                left += of_stream
        if not left:
            return self._changes(recovered)
        left.sort()
        changed = self._settle_all(left, now=now) | recovered
        return Changes(changed, (Removal(client_id, Cause.LEFT, tuple(left)),))

    def pin(self, group: str, targets: Iterable[str], *, until: float, now: float) -> Changes:
        """Assign all queues of a group to these clients or addresses until then. Raises GroupLimitReached."""
        if group not in self._groups and len(self._groups) >= self._rules.max_groups:
            raise GroupLimitReached("groups", self._rules.max_groups)
        pin = Pin(frozenset(targets), until)
        self._pinned.add(group)
        self._due = min(self._due, until)
        is_news = self._set_pin(self._group(group), pin)
        return self._changes(self._settle_all([group], now=now, news={group} if is_news else frozenset()))

    def unpin(self, group: str, *, now: float) -> Changes:
        """Remove the pin of a group, if it has one."""
        held = self._groups.get(group)
        if held is None or held.pin is None:
            return NOTHING
        self._pinned.discard(group)
        self._set_pin(held, None)
        return self._changes(self._settle_all([group], now=now, news={group}))

    def check_queue_pin(self, group: str, pin: QueuePin) -> QueuePins:
        """Return the pins of all groups with one more. Raises QueuePinRefused and GroupLimitReached."""
        held = self.membership(group)
        if held.message_model is MessageModel.BROADCASTING:
            raise QueuePinRefused(f"group {group} broadcasts: each of its members reads all queues")
        if held.agreement.is_configured:
            raise QueuePinRefused(f"the members of group {group} read configured queues (strategy {BY_CONFIG})")
        if unable := held.agreement.not_following_queue_pins:
            names = ", ".join(unable)
            raise QueuePinRefused(
                f"the clients of these members of group {group} do not follow pins of queues: {names}"
            )
        return self.queue_pins.with_pin(group, pin)

    def put_queue_pins(self, pins: QueuePins, *, now: float) -> Changes:
        """Replace the pins of queues of all groups."""
        changed, self.queue_pins = self.queue_pins.changed(pins), pins
        self._due = min(self._due, pins.next_end())
        return self._changes(self._show_queue_pins(changed, now=now))

    def recall(
        self, lists: Mapping[str, Iterable[str]] | None, *, with_offsets: Collection[str], now: float
    ) -> Changes:
        """Record what was stored before the start: members of each group (None: nothing), groups with offsets.

        From then on each group is RECOVERED when no such member is missing. After the warm-up it has no effect.
        """
        if self.state is not GroupState.WARMING:
            return NOTHING
        self._recovery.recall(lists, with_offsets=with_offsets)
        self._counter += 1
        self._state_counter = self._counter
        complete = [name for name in self._held if self._recovery.is_complete(name)]
        return Changes(self._settle_all(complete, now=now, may_hold=False), is_state=True)

    # --- time ---------------------------------------------------------------------------------------------------

    def next_due(self) -> float:
        """Return when to call :meth:`advance`: never too late, possibly early after a cancelled deadline."""
        return self._due

    def advance(self, *, now: float) -> Changes:
        """Do what is due: end graces, expire, end pins, show delayed changes, and become READY."""
        ended = [self._clients[client_id][number] for (client_id, number), at in self._graces.items() if at <= now]
        removals = self._remove(ended, Cause.STREAM_ENDED)
        if now >= self._next_scan:
            self._next_scan = now + self._rules.scan_interval
            silent = [each for each in self._streams() if now - each.last_beat_at > self._rules.expiry]
            removals += self._remove(silent, Cause.SILENCE)
        unpinned = {name for name in self._pinned if (pin := self._groups[name].pin) is not None and pin.until <= now}
        for name in unpinned:
            self._pinned.discard(name)
            self._set_pin(self._groups[name], None)
        lasting = self.queue_pins.lasting(now)
        without_pin, self.queue_pins = self.queue_pins.changed(lasting), lasting
        is_ready = self.state is GroupState.WARMING and now >= self._ready_at
        if is_ready:
            self._enter(GroupState.READY)
        touched = {name for removal in removals for name in removal.groups} | unpinned
        touched |= {name for name in self._held if is_ready or self._is_due(name, now=now)}
        changed = self._settle_all(touched, now=now, may_hold=not is_ready, news=unpinned)
        changed |= self._show_queue_pins(without_pin, now=now)
        self._due = self._earliest()
        return Changes(changed, tuple(removals), is_state=is_ready)

    def credit_pause(self, seconds: float, *, now: float) -> None:
        """Extend all deadlines by a pause of this process, in which no heartbeat could be received.

        During a long pause clients may have disconnected: for the warm-up time the end of a stream is weak evidence.
        """
        for stream in self._streams():
            stream.last_beat_at = min(now, stream.last_beat_at + seconds)
        if seconds > self._rules.stream_grace:
            self._lenient_until = max(self._lenient_until, now + self._rules.warm_up)
        self._graces = {key: max(at + seconds, self._lenient_until) for key, at in self._graces.items()}

    def drain(self) -> Changes:
        """Become DRAINING."""
        self._enter(GroupState.DRAINING)
        return Changes(is_state=True)

    def resume(self, *, now: float) -> Changes:
        """Become WARMING again, as after a start, so that removed clients may return."""
        self._ready_at = now + self._rules.warm_up
        self._enter(GroupState.WARMING)
        self._due = now
        return Changes(is_state=True)

    # --- state --------------------------------------------------------------------------------------------------

    @property
    def client_count(self) -> int:
        """Number of client ids."""
        return len(self._clients)

    @property
    def subscription_count(self) -> int:
        """Number of subscriptions of all members; a member without any counts as one."""
        return self._subscription_count

    @property
    def held_count(self) -> int:
        """Number of groups with delayed changes."""
        return len(self._held)

    @property
    def pinned_count(self) -> int:
        """Number of groups that are pinned, or have pinned queues."""
        return len(self._pinned | self.queue_pins.by_group.keys())

    @property
    def is_recalled(self) -> bool:
        """Whether the members from before the start were read, so that groups may be RECOVERED."""
        return self._recovery.is_known

    def state_of(self, group: str) -> GroupState:
        """Return whether the member list of a group is reliable."""
        is_recovered = self.state is GroupState.WARMING and self._recovery.is_complete(group)
        return GroupState.RECOVERED if is_recovered else self.state

    def member_lists(self) -> dict[str, list[str]]:
        """Return the members of each group that shares messages, sorted, with those missing since the start."""
        lists = {
            name: set(group.members)
            for name, group in self._groups.items()
            if group.members and group.message_model is not MessageModel.BROADCASTING
        }
        for name, missing in self._recovery.missing().items():
            lists.setdefault(name, set()).update(missing)
        return {name: sorted(client_ids) for name, client_ids in lists.items()}

    def names(self) -> list[str]:
        """Return the groups with members, sorted."""
        return sorted(name for name, each in self._groups.items() if each.members)

    def notices(self, group: str) -> NoticeRules:
        """Return how the members of a group are notified of changes, also for a group without members."""
        rules = self._rules.notices_of.get(group, self._rules.notices)
        held = self._groups.get(group)
        return NoticeRules(notify=held.notifies if held else rules.notify, hold_down=rules.hold_down)

    def revision(self, group: str) -> int:
        """The counter of a group; of one that is not known, of everything so far."""
        held = self._groups.get(group)
        return max(held.counter, self._state_counter) if held is not None else self._counter

    def membership(self, group: str) -> Membership:
        """Return a group as its members are sent it, also for a group without members."""
        held = self._groups.get(group)
        if held is None:
            state, pins = self.state_of(group), self.queue_pins.of(group)
            return Membership(group, self._counter, state, (), (), None, None, Agreement(), pins)
        return Membership(
            group,
            self.revision(group),
            self.state_of(group),
            held.client_ids,
            held.pinned_client_ids,
            held.pinned_until,
            held.message_model,
            held.shown_agreement,
            self.queue_pins.of(group),
        )

    def members(self, group: str) -> list[MemberFacts]:
        """Return the actual members of a group, sorted by client id."""
        held = self._groups.get(group)
        return sorted(self._member_facts(held), key=lambda each: each.client_id) if held is not None else []

    def agreement(self, group: str) -> Agreement:
        """Return what holds among the actual members of a group."""
        held = self._groups.get(group)
        return held.agreement if held is not None else Agreement()

    def streams_of(self, group: str) -> dict[str, int]:
        """Return the number of the stream that holds each member of a group, by client id."""
        held = self._groups.get(group)
        return {} if held is None else {client_id: member.stream for client_id, member in held.members.items()}

    def member_counts(self) -> dict[str, int]:
        """Return the number of members of each group."""
        return {name: len(group.members) for name, group in self._groups.items()}

    def summary(self, group: str) -> GroupSummary:
        """One of :meth:`names`."""
        return replace(
            held := self._groups[group].summary(), is_pinned=held.is_pinned or bool(self.queue_pins.of(group))
        )

    def check_invariants(self) -> None:
        """Hold clients and groups against each other; for tests."""
        for name, group in self._groups.items():
            assert name == group.name
            assert not group.is_empty
            group.check_invariants()
            assert (name in self._held) == (group.held_until is not None)
            assert (name in self._pinned) == (group.pin is not None)
            assert group.counter <= self._counter
        held_by = {
            (client_id, name): member.stream
            for name, group in self._groups.items()
            for client_id, member in group.members.items()
        }
        streams = list(self._streams())
        assert held_by == {(each.client_id, name): each.number for each in streams for name in each.groups}
        assert all(self._clients.values())
        assert self._stream_count == len(streams) <= self._rules.max_clients
        assert all(each.subscriptions == sum(map(weight_of, each.holdings())) for each in streams)
        assert self._subscription_count == sum(each.subscriptions for each in streams) <= self._rules.max_subscriptions
        by_peer = {(peer, *key) for peer, each in self._peers.items() for key in each.streams}
        assert by_peer == {(each.peer, *each.key) for each in streams}
        assert all(
            each.streams and each.subscriptions == sum(stream.subscriptions for stream in each.streams.values())
            for each in self._peers.values()
        )
        assert self._graces.keys() <= {each.key for each in streams}
        assert not any(self._clients[client_id][number].is_connected for client_id, number in self._graces)
        assert self._held | self._pinned <= self._groups.keys()

    # --- steps --------------------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[ClientStream]:
        return (stream for streams in self._clients.values() for stream in streams.values())

    def _holder_of(self, client_id: str, group: str) -> int:
        """Return the stream that holds a client in a group; -1 if none does."""
        held = self._groups.get(group)
        member = held.members.get(client_id) if held is not None else None
        return member.stream if member is not None else -1

    def _make_room(
        self, client_id: str, own: ClientStream | None, named: Sequence[GroupSubscription], *, peer: str
    ) -> Mapping[ClientStream, GroupLimitReached]:
        """Return the streams to refuse in favour of a heartbeat, and why. Raises GroupLimitReached for itself."""
        rules = self._rules
        asked = sum(map(weight, named))
        if asked > rules.max_subscriptions_per_client:
            raise GroupLimitReached(
                "subscriptions of one client", rules.max_subscriptions_per_client, field="groups", value=asked
            )
        new = sum(each.group not in self._groups for each in named)
        if new and len(self._groups) + new > rules.max_groups:
            raise GroupLimitReached("groups", rules.max_groups)
        taken = self._taken(client_id, own, named)
        freed = {
            each: sum(weight_of(each.groups[name].members[client_id]) for name in names)
            for each, names in taken.items()
        }
        emptied = {each for each, names in taken.items() if each.groups.keys() == names}
        refused: dict[ClientStream, GroupLimitReached] = {}
        streams = self._stream_count + (own is None) - len(emptied)
        if streams > rules.max_clients:
            refused |= self._refuse_most(
                GroupLimitReached("clients", rules.max_clients),
                beyond=streams - rules.max_clients,
                peer=peer,
                asked=1,
                held_by=lambda each: len(each.streams),
                size_of=lambda _: 1,
                freed=dict.fromkeys(emptied, 1),
            )
        asked -= own.subscriptions if own is not None else 0
        total = self._subscription_count + asked - sum(freed.values())
        if total > rules.max_subscriptions:
            refused |= self._refuse_most(
                GroupLimitReached("subscriptions", rules.max_subscriptions, field="groups", value=total),
                beyond=total - rules.max_subscriptions,
                peer=peer,
                asked=asked,
                held_by=lambda each: each.subscriptions,
                size_of=lambda each: each.subscriptions,
                freed=freed,
            )
        return refused

    def _taken(
        self, client_id: str, own: ClientStream | None, named: Iterable[GroupSubscription]
    ) -> dict[ClientStream, set[str]]:
        """Return which groups an accepted heartbeat takes from which other streams of its client."""
        taken: dict[ClientStream, set[str]] = {}
        for each in named:
            number = self._holder_of(client_id, each.group)
            if number >= 0 and (own is None or number != own.number):
                taken.setdefault(self._clients[client_id][number], set()).add(each.group)
        return taken

    def _refuse_most(
        self,
        error: GroupLimitReached,
        *,
        beyond: int,
        peer: str,
        asked: int,
        held_by: Callable[[StreamsOfPeer], int],
        size_of: Callable[[ClientStream], int],
        freed: Mapping[ClientStream, int],
    ) -> dict[ClientStream, GroupLimitReached]:
        """Pick streams to end until ``beyond`` is freed, the latest of the peer that holds most first.

        ``freed`` is what the heartbeat itself takes from streams. Raises ``error`` when its peer, with what is
        ``asked``, would hold as much as each of the others.
        """
        counts = {name: held_by(each) for name, each in self._peers.items()}
        for stream, size in freed.items():
            counts[stream.peer] -= size
        mine = counts.pop(peer, 0) + asked
        picked: list[ClientStream] = []
        left: dict[str, list[ClientStream]] = {}
        while beyond > 0:
            most = max(counts, key=counts.__getitem__, default="")
            if counts.get(most, 0) <= mine:
                raise error
            if most not in left:
                left[most] = sorted(self._peers[most].streams.values(), key=lambda each: each.number)
            stream = left[most].pop()
            size = size_of(stream) - freed.get(stream, 0)
            if size:
                picked.append(stream)
            counts[most] -= size
            beyond -= size
        return dict.fromkeys(picked, error)

    def _open(self, stream: ClientStream) -> ClientStream:
        self._clients.setdefault(stream.client_id, {})[stream.number] = stream
        self._peers.setdefault(stream.peer, StreamsOfPeer()).streams[stream.key] = stream
        self._stream_count += 1
        return stream

    def _close(self, stream: ClientStream) -> None:
        streams, peer = self._clients[stream.client_id], self._peers[stream.peer]
        del streams[stream.number], peer.streams[stream.key]
        if not streams:
            del self._clients[stream.client_id]
        if not peer.streams:
            del self._peers[stream.peer]
        self._stream_count -= 1
        self._graces.pop(stream.key, None)

    def _count(self, stream: ClientStream, subscriptions: int) -> None:
        stream.subscriptions += subscriptions
        self._peers[stream.peer].subscriptions += subscriptions
        self._subscription_count += subscriptions

    def _join(
        self, own: ClientStream, named: Sequence[GroupSubscription], *, now: float
    ) -> tuple[set[str], tuple[Takeover, ...]]:
        """Make a stream hold exactly these groups; return those that changed, and the streams that lost some."""
        client_id = own.client_id
        touched = own.groups.keys() - {each.group for each in named}
        self._take_out(own, touched)
        taken = self._taken(client_id, own, named)
        for older, names in taken.items():
            older.beat = None
            for name in names:
                self._count(older, -weight_of(older.groups.pop(name).members[client_id]))
        for subscription in named:
            group = self._group(subscription.group)
            member = group.members.get(client_id)
            is_held = group.name in own.groups
            if is_held and member is not None and member.subscription == subscription:
                continue
            if member is None or member.subscription != subscription:
                touched.add(group.name)
            self._count(own, weight(subscription) - (weight_of(member) if is_held and member is not None else 0))
            self.member_version += member is None
            group.put(client_id, subscription, stream=own.number, now=now)
            own.groups[group.name] = group
        took_over = []
        for older in sorted(taken, key=lambda each: each.number):
            if older.is_connected:
                took_over.append(Takeover(older.number, answer_of(older) if older.groups else TAKEN_OVER))
            if not older.groups:
                self._close(older)
        return touched, tuple(took_over)

    def _give_up(self, own: ClientStream, *, now: float) -> BeatAnswer:
        """Close a stream whose client is held by later streams in all groups that it names."""
        left = set(own.groups)
        self._take_out(own, left)
        self._close(own)
        changed = self._settle_all(left, now=now)
        return replace(TAKEN_OVER, changes=self._changes(changed)) if changed else TAKEN_OVER

    def _take_out(self, stream: ClientStream, names: Iterable[str]) -> None:
        for name in names:
            group = stream.groups.pop(name)
            self._count(stream, -weight_of(group.members[stream.client_id]))
            group.remove(stream.client_id)
            self.member_version += 1

    def _remove(self, streams: Iterable[ClientStream], cause: Cause) -> list[Removal]:
        """Remove streams with their members; the caller has to settle the groups."""
        removals = []
        for stream in streams:
            names = tuple(sorted(stream.groups))
            self._take_out(stream, names)
            self._close(stream)
            removals.append(Removal(stream.client_id, cause, names))
        return removals

    def _remove_and_settle(self, streams: Iterable[ClientStream], cause: Cause, *, now: float) -> Changes:
        removals = self._remove(streams, cause)
        touched = {name for removal in removals for name in removal.groups}
        return Changes(self._settle_all(touched, now=now), tuple(removals))

    def _recover(self, names: Iterable[str], client_id: str, *, now: float) -> frozenset[str]:
        """Record a client as back in groups; return those RECOVERED by that whose members must be notified."""
        if self.state is not GroupState.WARMING:
            return frozenset()
        recovered = {name for name in names if self._recovery.account_for(name, client_id)}
        self.member_version += bool(recovered)
        known = recovered & self._groups.keys()
        if recovered - known:
            self._counter += 1
        return self._settle_all(known, now=now, may_hold=False, news=known) | recovered

    def _set_pin(self, group: ConsumerGroup, pin: Pin | None) -> bool:
        before = group.pinned_client_ids, group.pinned_until
        group.pin = pin
        return before != (group.pinned_client_ids, group.pinned_until)

    def _show_queue_pins(self, names: AbstractSet[str], *, now: float) -> frozenset[str]:
        """Show these groups' pins of queues to their members, and return the groups."""
        known = names & self._groups.keys()
        if names - known:
            self._counter += 1
        return self._settle_all(known, now=now, news=known) | names

    def _settle_all(
        self, names: Iterable[str], *, now: float, may_hold: bool = True, news: AbstractSet[str] = frozenset()
    ) -> frozenset[str]:
        """Settle each of these groups once; return those with a visible change. ``news``: groups with a changed pin.

        Call it after all changes of a call: with half of a scan's clients removed, a group has a state that its members
        must not see.
        """
        return frozenset(
            name
            for name in sorted(names)
            if self._settle(self._groups[name], now=now, may_hold=may_hold, is_news=name in news)
        )

    def _settle(self, group: ConsumerGroup, *, now: float, may_hold: bool, is_news: bool) -> bool:
        """Show a group's changes to its members, unless delayed; return whether that changed anything."""
        is_news = group.settle(now=now, may_hold=may_hold) or is_news
        if is_news:
            self._counter += 1
            group.counter = self._counter
        if group.held_until is None:
            self._held.discard(group.name)
        else:
            self._held.add(group.name)
            self._due = min(self._due, group.held_until)
        if group.is_empty:
            self._groups.pop(group.name, None)
        return is_news

    def _group(self, name: str) -> ConsumerGroup:
        held = self._groups.get(name)
        if held is None:
            rules = self._rules.notices_of.get(name, self._rules.notices)
            held = self._groups[name] = ConsumerGroup(name, rules.hold_down, rules.notify)
        return held

    def _earliest(self) -> float:
        due = [self._next_scan, *self._graces.values()]
        if self.state is GroupState.WARMING:
            due.append(self._ready_at)
        due += (at for name in self._held if (at := self._groups[name].held_until) is not None)
        due += (pin.until for name in self._pinned if (pin := self._groups[name].pin) is not None)
        due.append(self.queue_pins.next_end())
        return min(due)

    def _is_due(self, name: str, *, now: float) -> bool:
        at = self._groups[name].held_until
        return at is not None and at <= now

    def _enter(self, state: GroupState) -> None:
        self.state = state
        self.member_version += bool(self._recovery.missing())
        self._recovery = Recovery()
        self._counter += 1
        self._state_counter = self._counter

    def _member_facts(self, group: ConsumerGroup) -> Iterator[MemberFacts]:
        differing = group.agreement.differing
        for client_id, member in group.members.items():
            stream = self._clients[client_id][member.stream]
            yield MemberFacts(
                client_id,
                stream.peer,
                member.subscription,
                member.joined_at,
                stream.last_beat_at,
                stream.is_connected,
                differing.get(client_id),
            )

    @staticmethod
    def _changes(changed: frozenset[str]) -> Changes:
        return Changes(changed) if changed else NOTHING
