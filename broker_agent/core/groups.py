"""Who is alive in which consumer group: RocketMQ's ``ConsumerManager``, by client id instead of by connection.

A client says with each beat all groups that it is in. It is held by the latest of its streams: what an earlier one
says, or its end, counts no more. It is out at once when it leaves, after a grace when its stream ended, and when it was
silent for *longer* than the expiry, whatever its stream does. What changed for the members of a group takes the next
number of one counter for all groups, so that within a boot later is always higher, groups that come and go included.

``now`` is monotonic seconds of the caller's clock. Only :meth:`Groups.advance` acts on time; who owns the clock calls
it at :meth:`Groups.next_due`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from broker_agent.core.consumer_group import ConsumerGroup
from broker_agent.core.group_rules import GroupLimitReached, GroupRules, NoticeRules
from broker_agent.core.membership import (
    HELD,
    NOTHING,
    TAKEN_OVER,
    BeatAnswer,
    Cause,
    Changes,
    GroupState,
    GroupSummary,
    MemberFacts,
    Membership,
    MembershipBeat,
    MembershipStatus,
    Removal,
)
from broker_agent.core.pin import Pin


@dataclass(slots=True, eq=False)
class _Client:
    stream: int
    peer: str
    beat: MembershipBeat | None
    """None: it is no longer in all of the groups that it named."""
    last_beat_at: float
    is_connected: bool = True
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)


class Groups:
    """All clients and groups. ``boot`` is the random part of every revision of this process."""

    def __init__(self, rules: GroupRules, *, boot: int, now: float) -> None:
        self.boot = boot
        self.state = GroupState.WARMING
        self._rules = rules
        self._ready_at = now + rules.warm_up
        self._next_scan = now + rules.scan_interval
        self._counter = 0
        self._state_counter = 0
        self._clients: dict[str, _Client] = {}
        self._groups: dict[str, ConsumerGroup] = {}
        self._graces: dict[str, float] = {}
        self._held: set[str] = set()
        self._pinned: set[str] = set()
        self._lenient_until = now
        self._due = now

    # --- what clients and operators do --------------------------------------------------------------------------

    def beat(self, beat: MembershipBeat, *, stream: int, peer: str, now: float) -> BeatAnswer:
        """Take a beat. ``stream`` is a number that rises with each stream's first beat.

        Raises GroupLimitReached.
        """
        client = self._clients.get(beat.client_id)
        if client is not None and client.beat is beat and client.stream == stream:
            client.last_beat_at = now
            return _answer(client)
        if client is not None and stream < client.stream:
            return TAKEN_OVER
        self._refuse_beyond_bounds(beat, client)
        took_over = None
        if client is None:
            client = self._clients[beat.client_id] = _Client(stream, peer, beat, now)
        elif client.stream != stream:
            took_over = client.stream if client.is_connected else None
        self._graces.pop(beat.client_id, None)
        client.stream, client.peer, client.is_connected, client.last_beat_at = stream, peer, True, now
        changed = self._join(beat, client, now=now)
        client.beat = beat
        return _answer(client, changes=self._changes(changed), took_over=took_over)

    def end_stream(self, client_id: str, *, stream: int, by_us: bool, now: float) -> Changes:
        """Take in that a stream ended; ``by_us``: that says nothing of its client, which is judged by its silence."""
        client = self._clients.get(client_id)
        if client is None or client.stream != stream:
            return NOTHING
        client.is_connected = False
        if by_us:
            return NOTHING
        ends_at = max(now + self._rules.stream_grace, self._lenient_until)
        if ends_at <= now:
            return self._remove_and_settle([client_id], Cause.STREAM_ENDED, now=now)
        self._graces[client_id] = ends_at
        self._due = min(self._due, ends_at)
        return NOTHING

    def holder(self, client_id: str) -> str | None:
        """The peer whose open stream holds a client; None when there is none."""
        client = self._clients.get(client_id)
        return client.peer if client is not None and client.is_connected else None

    def leave(self, client_id: str, groups: Iterable[str] = (), *, now: float) -> Changes:
        """Let a client leave these groups, or all: then it is forgotten, until it beats again."""
        client = self._clients.get(client_id)
        if client is None:
            return NOTHING
        named = set(groups)
        if not named:
            return self._remove_and_settle([client_id], Cause.LEFT, now=now)
        left = sorted(named & client.groups.keys())
        if not left:
            return NOTHING
        client.beat = None
        self._take_out(client_id, client, left)
        return Changes(self._settle_all(left, now=now), (Removal(client_id, Cause.LEFT, tuple(left)),))

    def pin(self, group: str, targets: Iterable[str], *, until: float, now: float) -> Changes:
        """Give all queues of a group to these clients or addresses until then. Raises GroupLimitReached."""
        if group not in self._groups and len(self._groups) >= self._rules.max_groups:
            raise GroupLimitReached("groups", self._rules.max_groups)
        pin = Pin(frozenset(targets), until)
        self._pinned.add(group)
        self._due = min(self._due, until)
        is_news = self._set_pin(self._group(group), pin)
        return self._changes(self._settle_all([group], now=now, news={group} if is_news else frozenset()))

    def unpin(self, group: str, *, now: float) -> Changes:
        """End the pin of a group, if it has one."""
        held = self._groups.get(group)
        if held is None or held.pin is None:
            return NOTHING
        self._pinned.discard(group)
        self._set_pin(held, None)
        return self._changes(self._settle_all([group], now=now, news={group}))

    # --- what time does -----------------------------------------------------------------------------------------

    def next_due(self) -> float:
        """When :meth:`advance` may have something to do: never too late, and early where something was called off."""
        return self._due

    def advance(self, *, now: float) -> Changes:
        """Do what is due: end graces, expire, end pins, show what was held back, and be READY."""
        ended = [client_id for client_id, at in self._graces.items() if at <= now]
        removals = self._remove(ended, Cause.STREAM_ENDED)
        if now >= self._next_scan:
            self._next_scan = now + self._rules.scan_interval
            silent = [name for name, each in self._clients.items() if now - each.last_beat_at > self._rules.expiry]
            removals += self._remove(silent, Cause.SILENCE)
        unpinned = {name for name in self._pinned if (pin := self._groups[name].pin) is not None and pin.until <= now}
        for name in unpinned:
            self._pinned.discard(name)
            self._set_pin(self._groups[name], None)
        is_ready = self.state is GroupState.WARMING and now >= self._ready_at
        if is_ready:
            self._enter(GroupState.READY)
        touched = {name for removal in removals for name in removal.groups} | unpinned
        touched |= {name for name in self._held if is_ready or self._is_due(name, now=now)}
        changed = self._settle_all(touched, now=now, may_hold=not is_ready, news=unpinned)
        self._due = self._earliest()
        return Changes(changed, tuple(removals), is_state=is_ready)

    def excuse(self, seconds: float, *, now: float) -> None:
        """Credit a pause of our own: nobody was heard in it.

        Because of a long one clients may have hung up on us: for the time of a warm-up the end of a stream says little.
        """
        for client in self._clients.values():
            client.last_beat_at = min(now, client.last_beat_at + seconds)
        if seconds > self._rules.stream_grace:
            self._lenient_until = max(self._lenient_until, now + self._rules.warm_up)
        self._graces = {client_id: max(at + seconds, self._lenient_until) for client_id, at in self._graces.items()}

    def drain(self) -> Changes:
        """Be DRAINING from now on."""
        self._enter(GroupState.DRAINING)
        return Changes(is_state=True)

    def resume(self, *, now: float) -> Changes:
        """Be WARMING after all, as after a start: whoever was sent away may come back."""
        self._ready_at = now + self._rules.warm_up
        self._enter(GroupState.WARMING)
        self._due = now
        return Changes(is_state=True)

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def client_count(self) -> int:
        """Clients."""
        return len(self._clients)

    @property
    def held_count(self) -> int:
        """Groups that hold changes back."""
        return len(self._held)

    @property
    def pinned_count(self) -> int:
        """Pinned groups."""
        return len(self._pinned)

    def names(self) -> list[str]:
        """Groups that somebody is in, sorted."""
        return sorted(name for name, each in self._groups.items() if each.members)

    def notices(self, group: str) -> NoticeRules:
        """How the members of a group are told of changes, whether there are any or not."""
        rules = self._rules.notices_of.get(group, self._rules.notices)
        held = self._groups.get(group)
        return NoticeRules(notify=held.notifies if held else rules.notify, hold_down=rules.hold_down)

    def revision(self, group: str) -> int:
        """The counter of a group; of one that is not known, of everything so far."""
        held = self._groups.get(group)
        return max(held.counter, self._state_counter) if held is not None else self._counter

    def membership(self, group: str) -> Membership:
        """A group as its members are told, whether there are any or not."""
        held = self._groups.get(group)
        if held is None:
            return Membership(group, self._counter, self.state, (), (), None, None)
        return Membership(
            group,
            self.revision(group),
            self.state,
            held.client_ids,
            held.pinned_client_ids,
            held.pinned_until,
            held.message_model,
        )

    def members(self, group: str) -> list[MemberFacts]:
        """The true members of a group, sorted by client id; empty: nobody is in it."""
        held = self._groups.get(group)
        return sorted(self._member_facts(held), key=lambda each: each.client_id) if held is not None else []

    def member_counts(self) -> dict[str, int]:
        """How many members each group has."""
        return {name: len(group.members) for name, group in self._groups.items()}

    def summary(self, group: str) -> GroupSummary:
        """One of :meth:`names`."""
        return self._groups[group].summary()

    def check_invariants(self) -> None:
        """Hold clients and groups against each other; for tests."""
        for name, group in self._groups.items():
            assert name == group.name
            assert not group.is_empty
            group.check_invariants()
            assert (name in self._held) == (group.held_until is not None)
            assert (name in self._pinned) == (group.pin is not None)
            assert group.counter <= self._counter
        in_groups = {(client_id, name) for name, group in self._groups.items() for client_id in group.members}
        assert in_groups == {(client_id, name) for client_id, each in self._clients.items() for name in each.groups}
        assert self._graces.keys() <= self._clients.keys()
        assert not any(self._clients[client_id].is_connected for client_id in self._graces)
        assert self._held | self._pinned <= self._groups.keys()

    # --- steps --------------------------------------------------------------------------------------------------

    def _refuse_beyond_bounds(self, beat: MembershipBeat, client: _Client | None) -> None:
        if client is None and len(self._clients) >= self._rules.max_clients:
            raise GroupLimitReached("clients", self._rules.max_clients)
        new = sum(each.group not in self._groups for each in beat.groups)
        if new and len(self._groups) + new > self._rules.max_groups:
            raise GroupLimitReached("groups", self._rules.max_groups)

    def _join(self, beat: MembershipBeat, client: _Client, *, now: float) -> frozenset[str]:
        left = client.groups.keys() - {each.group for each in beat.groups}
        self._take_out(beat.client_id, client, left)
        touched = set(left)
        for subscription in beat.groups:
            group = self._group(subscription.group)
            member = group.members.get(beat.client_id)
            if member is not None and member.subscription == subscription:
                continue
            group.put(beat.client_id, subscription, now=now)
            client.groups[group.name] = group
            touched.add(group.name)
        return self._settle_all(touched, now=now)

    def _take_out(self, client_id: str, client: _Client, names: Iterable[str]) -> None:
        for name in names:
            client.groups.pop(name).remove(client_id)

    def _remove(self, client_ids: Iterable[str], cause: Cause) -> list[Removal]:
        """Remove clients from all of their groups, which the caller is to settle."""
        removals = []
        for client_id in client_ids:
            client = self._clients.pop(client_id)
            self._graces.pop(client_id, None)
            names = tuple(sorted(client.groups))
            self._take_out(client_id, client, names)
            removals.append(Removal(client_id, cause, names))
        return removals

    def _remove_and_settle(self, client_ids: Iterable[str], cause: Cause, *, now: float) -> Changes:
        removals = self._remove(client_ids, cause)
        touched = {name for removal in removals for name in removal.groups}
        return Changes(self._settle_all(touched, now=now), tuple(removals))

    def _set_pin(self, group: ConsumerGroup, pin: Pin | None) -> bool:
        before = group.pinned_client_ids, group.pinned_until
        group.pin = pin
        return before != (group.pinned_client_ids, group.pinned_until)

    def _settle_all(
        self, names: Iterable[str], *, now: float, may_hold: bool = True, news: AbstractSet[str] = frozenset()
    ) -> frozenset[str]:
        """Settle each of these groups once; return those with a change to show. In ``news`` are those with another pin.

        To be called after all changes of a call: with half of a scan's clients removed, a group has a state that its
        members must not see.
        """
        return frozenset(
            name
            for name in sorted(names)
            if self._settle(self._groups[name], now=now, may_hold=may_hold, is_news=name in news)
        )

    def _settle(self, group: ConsumerGroup, *, now: float, may_hold: bool, is_news: bool) -> bool:
        """Follow a change of a group to what its members are shown; return whether that changed."""
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
        return min(due)

    def _is_due(self, name: str, *, now: float) -> bool:
        at = self._groups[name].held_until
        return at is not None and at <= now

    def _enter(self, state: GroupState) -> None:
        self.state = state
        self._counter += 1
        self._state_counter = self._counter

    def _member_facts(self, group: ConsumerGroup) -> Iterator[MemberFacts]:
        for client_id, is_conflicting in group.conflicting():
            member, client = group.members[client_id], self._clients[client_id]
            yield MemberFacts(
                client_id,
                client.peer,
                member.subscription,
                member.joined_at,
                client.last_beat_at,
                client.is_connected,
                is_conflicting,
            )

    @staticmethod
    def _changes(changed: frozenset[str]) -> Changes:
        return Changes(changed) if changed else NOTHING


def _answer(client: _Client, *, changes: Changes = NOTHING, took_over: int | None = None) -> BeatAnswer:
    conflicting: tuple[str, ...] = ()
    for group in client.groups.values():
        if group.is_conflicting:
            conflicting = tuple(sorted(each.name for each in client.groups.values() if each.is_conflicting))
            break
    if not conflicting and changes is NOTHING and took_over is None:
        return HELD
    return BeatAnswer(MembershipStatus.OK, conflicting, changes, took_over)
