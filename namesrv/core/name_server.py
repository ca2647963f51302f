"""The name server as a state machine: registrations, signs of life and time in; events and answers out.

Every method is synchronous and runs to its end, so there is no lock and nobody sees a half-made route. Time is
``now``, monotonic seconds of the caller's choice. A method that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from namesrv.core.broker_events import broker_event, delta_event, registration_event, topics_event, write_perm_event
from namesrv.core.errors import (
    BrokerUnknown,
    ClusterNotFound,
    IdentityHeld,
    InvalidRequest,
    LimitExceeded,
    StaleDataVersion,
    StaleGeneration,
    TopicNotFound,
)
from namesrv.core.events import Event, EventKind, Reason
from namesrv.core.flapping import Penalties
from namesrv.core.group import Group, MemberView, Replica
from namesrv.core.guard import Guard, GuardRules
from namesrv.core.kv import KvConfig
from namesrv.core.liveness import LivenessRules, Pulse, sweep_interval
from namesrv.core.maintenance import MaintenanceWindows
from namesrv.core.model import (
    MASTER_ID,
    BrokerIdentity,
    BrokerState,
    DataVersion,
    GroupKey,
    Health,
    Position,
    ProbeVerdict,
    QueueConfig,
    Registration,
    TopicTable,
)
from namesrv.core.overrides import Overrides
from namesrv.core.punctuality import Punctuality
from namesrv.core.queue_stats import QueueStats
from namesrv.core.route_table import RouteTable
from namesrv.core.staging import StagedTopics, staged
from namesrv.core.validation import MOST_VIOLATION_BYTES
from pointsman.wire.violation import FieldViolation, bounded, shown

GENERATIONS = 2**64
TOLD_A_SWEEP = 500
"""Maximum heartbeat rows per sweep. A fleet that started at the same moment is spread over a few sweeps."""
OVERDUE_AT_ONCE = 200
"""Maximum overdue brokers per sweep. The next sweep follows immediately; queries are served in between."""
PAUSE_SECONDS = 1.0
"""A pause of our own from which the history is told of it; shorter ones are credited all the same."""


class BeatStatus(StrEnum):
    """What the server wants after a beat."""

    OK = "OK"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"
    TOPICS_OUT_OF_DATE = "TOPICS_OUT_OF_DATE"


class LeaveStatus(StrEnum):
    """What became of a polite leave."""

    UNREGISTERED = "UNREGISTERED"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"


class StatsStatus(StrEnum):
    """What became of a report of queue statistics."""

    RECORDED = "RECORDED"
    UNKNOWN_BROKER = "UNKNOWN_BROKER"
    STALE_GENERATION = "STALE_GENERATION"


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to an accepted registration."""

    generation: int
    view: MemberView
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class TopicsUpdated:
    """The answer to an accepted delta."""

    topic_count: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """The answer to a beat."""

    status: BeatStatus
    view: MemberView = MemberView()
    holder_addr: str = ""
    held_data_version: DataVersion | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """The answer to a polite leave."""

    status: LeaveStatus
    holder_addr: str = ""
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class StatsAnswer:
    """The answer to a report of queue statistics."""

    status: StatsStatus
    holder_addr: str = ""
    events: tuple[Event, ...] = ()


class NameServer:
    """All registered brokers and the routes they make.

    ``first_generation`` is random each boot, so that no fence of an earlier boot fits by chance;
    ``started_at`` is the monotonic time of the start.
    """

    def __init__(
        self,
        *,
        rules: LivenessRules,
        first_generation: int,
        started_at: float,
        guard_rules: GuardRules | None = None,
        max_brokers: int = 20_000,
        every_heartbeat: bool = False,
    ) -> None:
        self.overrides = Overrides()
        self.routes = RouteTable(self.overrides)
        self.guard = Guard(guard_rules or GuardRules(), hand_over=rules.hand_over)
        self.maintenance = MaintenanceWindows()
        self.kv = KvConfig()
        self.penalties = Penalties()
        self._rules = rules
        self._next_generation = first_generation % GENERATIONS
        self._lenient_since = started_at
        self._has_more_overdue = False
        self._max_brokers = max_brokers
        self._count = 0
        self._shortest_expiry: float | None = None
        """No longer than the shortest that is declared: exact after each sweep."""
        self._every_heartbeat = every_heartbeat

    # --- what brokers say -------------------------------------------------------------------------------------

    def held_topics(self, identity: BrokerIdentity) -> TopicTable:
        """The topics to compare a coming registration with: its position's own, else those of its group."""
        group = self.routes.groups.get(identity.group_key)
        if group is None:
            return {}
        replica = group.replicas.get(identity.broker_id) or group.contributor()
        return {} if replica is None else replica.registration.topics

    def register(self, registration: Registration, *, now: float, topics: StagedTopics | None = None) -> Registered:
        """Accept a broker's whole state in place of whatever its identity and address held before.

        ``topics``: those of the registration, already compared with :meth:`held_topics`; without it they are compared
        here. Raises IdentityHeld when another address that is UP holds the identity with a higher state version, and
        LimitExceeded.
        """
        identity = registration.identity
        group = self.routes.groups.get(identity.group_key) or Group(identity.group_key)
        holder = group.replicas.get(identity.broker_id)
        self._refuse_lower_claim(registration, holder, now=now)
        vacated = group.at_addr(identity.addr)
        if vacated is holder:
            vacated = None
        if holder is None and vacated is None and self._count >= self._max_brokers:
            raise LimitExceeded("brokers", self._max_brokers)
        if topics is None:
            topics = staged(registration.topics, held=self.held_topics(identity))
        if registration.topics is not topics.topics:
            registration = replace(registration, topics=topics.topics)
        events: list[Event] = []
        if vacated is not None:
            del group.replicas[vacated.identity.broker_id]
            self._count -= 1
            events.append(broker_event(EventKind.UNREGISTERED, vacated, Reason.SUPERSEDED, now=now))
        replica = self._new_replica(registration, holder, now=now)
        self._count += holder is None
        group.replicas[identity.broker_id] = replica
        self.routes.groups[group.key] = group
        ended = self._end_wipe(group, registration)
        if replica.failing_since is not None:
            events += self._fail(replica, now=now)
        reappears = group.contributor() is replica and self.overrides.end_tombstones(registration)
        disappears = group.key in self.overrides.tombstones and registration.data_version != _data_version(holder)
        visibly = vacated is not None or bool(ended) or _visible(replica) != _visible(holder)
        if visibly or reappears or disappears or replica.registration.topics is not _topics(holder):
            self.routes.refresh(group, visibly=visibly, staged=topics)
        if holder is None or not _is_renewal(replica, holder):
            events.append(self._told(replica, registration_event(replica, holder=holder, vacated=vacated, now=now)))
        told_topics = topics_event(replica, topics, holder=holder)
        if told_topics is not None:
            events.append(told_topics)
        return Registered(replica.generation, group.view_for(identity.broker_id), (*events, *ended))

    def restore(self, registration: Registration, generation: int, *, now: float) -> None:
        """Take a broker from the snapshot: routed, PROVISIONAL until it is heard, for one expiry; not if it is held."""
        key = registration.identity.group_key
        group = self.routes.groups.get(key) or Group(key)
        if registration.identity.broker_id in group.replicas or group.at_addr(registration.identity.addr) is not None:
            return
        topics = staged(registration.topics, held=self.held_topics(registration.identity))
        replica = self._new_replica(replace(registration, topics=topics.topics), None, now=now)
        replica.generation = generation
        replica.is_out = replica.failing_since is not None
        if replica.is_out:
            # The snapshot does not tell since when: so long that the guard's window neither saw it live nor lost it.
            replica.failing_since = now - 2 * registration.expiry
        replica.known_since = now - registration.expiry
        replica.is_provisional = True
        group.replicas[registration.identity.broker_id] = replica
        self._count += 1
        self.routes.refresh(group, staged=topics)

    def restore_overrides(
        self, wipes: Mapping[GroupKey, str], tombstones: Mapping[GroupKey, Mapping[str, DataVersion]]
    ) -> None:
        """Take what operators had laid over the brokers' own word."""
        for key in self.overrides.restore(wipes, tombstones):
            group = self.routes.groups.get(key)
            if group is not None:
                self.routes.refresh(group)

    def update_topics(
        self,
        identity: BrokerIdentity,
        generation: int,
        *,
        base: DataVersion,
        data_version: DataVersion,
        changed: dict[str, QueueConfig],
        removed: Iterable[str],
        max_topics: int,
    ) -> TopicsUpdated:
        """Apply a delta to a registered topic set.

        Raises BrokerUnknown, StaleGeneration, StaleDataVersion, InvalidRequest for a removed topic that is not held,
        and LimitExceeded for a set of more than ``max_topics``.
        """
        replica = self._replica(identity)
        if replica is None:
            raise BrokerUnknown(identity)
        if not _is_held_by(replica, identity, generation):
            raise StaleGeneration(identity, generation=generation, holder_addr=replica.identity.addr)
        held = replica.registration
        if held.data_version != base:
            raise StaleDataVersion(identity, held=held.data_version, base=base)
        gone = tuple(removed)
        unknown = [
            FieldViolation(f"removed[{i}]", f"is no topic of this broker: {shown(topic)}")
            for i, topic in enumerate(gone)
            if topic not in held.topics
        ]
        if unknown:
            raise InvalidRequest(bounded(unknown, most_bytes=MOST_VIOLATION_BYTES))
        topics = {**held.topics, **changed}
        for topic in gone:
            del topics[topic]
        if len(topics) > max_topics:
            raise LimitExceeded("topics_per_broker", max_topics)
        replica.registration = replace(held, topics=topics, data_version=data_version)
        group = self.routes.groups[identity.group_key]
        if group.contributor() is replica:
            self.overrides.end_tombstones(replica.registration)
        delta = StagedTopics(topics, held.topics, changed, gone)
        self.routes.refresh(group, visibly=False, staged=delta)
        return TopicsUpdated(len(topics), (delta_event(replica, changed, gone, base=base),))

    def beat(
        self,
        identity: BrokerIdentity,
        generation: int,
        *,
        data_version: DataVersion,
        health: Health = Health(),
        now: float,
        stream: int | None = None,
        hand_over: bool = False,
        clock_ahead_ms: int | None = None,
    ) -> BeatAnswer:
        """Take one sign of life, and what the probe says. ``stream`` tells KeepAlive streams apart.

        ``clock_ahead_ms``: how far the agent's wall clock seemed ahead of ours, if the beat told it.
        """
        group = self.routes.groups.get(identity.group_key)
        replica = group.replicas.get(identity.broker_id) if group is not None else None
        if group is None or replica is None:
            return BeatAnswer(BeatStatus.UNKNOWN_BROKER)
        if not _is_held_by(replica, identity, generation):
            return BeatAnswer(BeatStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        events = self._take_sign_of_life(group, replica, health, stream=stream, hand_over=hand_over, now=now)
        if clock_ahead_ms is not None:
            replica.punctuality.add_clock(clock_ahead_ms)
        view = group.view_for(identity.broker_id)
        held = replica.registration.data_version
        if held != data_version:
            return BeatAnswer(BeatStatus.TOPICS_OUT_OF_DATE, view, held_data_version=held, events=events)
        return BeatAnswer(BeatStatus.OK, view, events=events)

    def _take_sign_of_life(
        self, group: Group, replica: Replica, health: Health, *, stream: int | None, hand_over: bool, now: float
    ) -> tuple[Event, ...]:
        before, pulse, failing = replica.state, replica.pulse, health.verdict is ProbeVerdict.FAILING
        was_failing = replica.health.verdict is ProbeVerdict.FAILING
        kind: EventKind | None = None
        reason: Reason | None = None
        if replica.is_provisional:
            kind, reason = EventKind.REREGISTERED, Reason.SNAPSHOT
        elif was_failing and not failing:
            kind, reason = EventKind.RECOVERED, Reason.PROBE
        elif pulse.suspect and not failing:
            kind, reason = EventKind.RECOVERED, Reason.HEARTBEAT
        elif not failing and pulse.is_late(now=now):
            kind = EventKind.LATE_HEARTBEAT
        # An event tells the silence before this beat, so it is made before the beat is taken.
        events = [] if kind is None else [broker_event(kind, replica, reason, now=now)]
        beats = (broker_event(EventKind.HEARTBEAT, replica, now=now),) if self._every_heartbeat else ()
        silence = now - pulse.last_seen
        replica.punctuality.add(silence)
        pulse.beat(now=now, stream=stream, hand_over=hand_over)
        replica.health = health
        was_provisional, replica.is_provisional = replica.is_provisional, False
        if not failing:
            replica.failing_since, replica.is_out, replica.protected_from = None, False, None
            if was_failing and replica.identity.broker_id == MASTER_ID:
                # What it said while it was out of the routes is its group's word from now on.
                self.overrides.end_tombstones(replica.registration)
        elif was_provisional and was_failing:
            events = [self._told(replica, event) for event in events]
        elif not was_failing:
            replica.failing_since = now
            events += self._fail(replica, now=now)
            told = Event(kind=EventKind.SUSPECTED, reason=Reason.PROBE, broker=replica.facts(), interval=silence)
            events.append(self._told(replica, told))
        elif replica.protected_from is not None:
            replica.protected_from = Reason.PROBE
        if replica.state is not before:
            self.routes.refresh(group)
        return (*events, *beats)

    def end_stream(
        self, identity: BrokerIdentity, generation: int, *, stream: int, now: float, by_us: bool = False
    ) -> tuple[Event, ...]:
        """Take the end of a KeepAlive stream.

        One that we ended ourselves says nothing of the broker, and neither does one that ends within an expiry of our
        own start or pause: its agent may have waited for us in vain. Then silence alone speaks.
        """
        group = self.routes.groups.get(identity.group_key)
        replica = self._replica(identity)
        if group is None or replica is None or not _is_held_by(replica, identity, generation):
            return ()
        if by_us or now - self._lenient_since <= replica.pulse.expiry:
            replica.pulse.forget_stream(stream)
            return ()
        if not replica.pulse.break_stream(stream, now=now):
            return ()
        return self._suspect(group, replica, Reason.STREAM_BROKEN, now=now)

    def unregister(self, identity: BrokerIdentity, generation: int, *, reason: Reason, now: float) -> LeaveAnswer:
        """Let a broker go politely; a stale generation changes nothing."""
        group = self.routes.groups.get(identity.group_key)
        replica = self._replica(identity)
        if group is None or replica is None:
            return LeaveAnswer(LeaveStatus.UNKNOWN_BROKER)
        if not _is_held_by(replica, identity, generation):
            return LeaveAnswer(LeaveStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        event = broker_event(EventKind.UNREGISTERED, replica, reason, now=now)
        self._remove(group, replica, lost=False, now=now)
        return LeaveAnswer(LeaveStatus.UNREGISTERED, events=(event,))

    def report_queue_stats(self, identity: BrokerIdentity, generation: int, stats: QueueStats) -> StatsAnswer:
        """Hand on what an agent measured of its broker's queues; nothing is kept, and it is no sign of life."""
        replica = self._replica(identity)
        if replica is None:
            return StatsAnswer(StatsStatus.UNKNOWN_BROKER)
        if not _is_held_by(replica, identity, generation):
            return StatsAnswer(StatsStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        event = Event(kind=EventKind.QUEUE_STATS, broker=replica.facts(), detail=stats.detail())
        return StatsAnswer(StatsStatus.RECORDED, events=(event,))

    # --- what time does ---------------------------------------------------------------------------------------

    def sweep(self, *, now: float) -> tuple[Event, ...]:
        """Remove whoever's time is over and mark whoever is overdue, the longest silent first.

        A plain walk: 10,000 brokers take a few milliseconds, less than keeping a heap in step with each beat.
        """
        events = [_maintenance_over(window.key) for window in self.maintenance.end_overdue(now=now)]
        members = list(self.members())
        events += self._judge(members, now=now)
        overdue = [
            (group, replica)
            for group, replica in members
            if replica.protected_from is not None or not replica.pulse.is_well(now=now)
        ]
        overdue.sort(key=lambda member: member[1].pulse.last_seen)
        most, self._has_more_overdue = len(events) + OVERDUE_AT_ONCE, False
        for group, replica in overdue:
            if len(events) >= most:
                self._has_more_overdue = True
                break
            expired = self._why_expired(replica, now=now)
            suspect = replica.pulse.why_suspect(now=now)
            if expired is not None:
                events += self._lose(group, replica, expired, now=now)
            elif replica.protected_from is Reason.PROBE:
                events += self._let_failing_go(group, replica, now=now)
            elif suspect is not None:
                events += self._suspect(group, replica, suspect, now=now)
        if not self._has_more_overdue:
            events += self._tell_unannounced(now=now)
        self._shortest_expiry = min((replica.pulse.expiry for _, replica in self.members()), default=None)
        return (*events, *self._tell_heartbeats(now=now))

    def excuse(self, seconds: float, *, now: float) -> tuple[Event, ...]:
        """Credit everybody a pause of our own that ends now: whoever spoke meanwhile was not heard."""
        for _, replica in self.members():
            replica.pulse.excuse(seconds, now=now)
        self.guard.excuse(seconds)
        if seconds < PAUSE_SECONDS:
            return ()
        self._lenient_since = now
        return (Event(kind=EventKind.NAMESRV_PAUSED, detail={"seconds": round(seconds, 3)}),)

    def _judge(self, members: list[tuple[Group, Replica]], *, now: float) -> list[Event]:
        """Let the guard count all members anew, and put back into the routes what it keeps."""
        covered = ((replica, self.maintenance.covers(group.key, now=now)) for group, replica in members)
        events = self.guard.judge(covered, now=now)
        if any(event.kind is EventKind.GUARD_ON for event in events):
            for group, replica in members:
                failing = replica.failing_since is not None and now - replica.failing_since <= replica.pulse.expiry
                if failing and not replica.is_routed and self._keeps(group, replica, now=now):
                    replica.protected_from = Reason.PROBE
                    self.routes.refresh(group)
        return events

    def _keeps(self, group: Group, replica: Replica, *, now: float) -> bool:
        return self.guard.keeps(replica, now=now) and not self.maintenance.covers(group.key, now=now)

    def _lose(self, group: Group, replica: Replica, reason: Reason, *, now: float) -> tuple[Event, ...]:
        """Take a replica whose time is over out of the table, unless the guard keeps it."""
        if self.maintenance.covers(group.key, now=now):
            detail: dict[str, object] = {"cause": reason.value}
            event = broker_event(EventKind.UNREGISTERED, replica, Reason.MAINTENANCE, now=now, detail=detail)
            self._remove(group, replica, lost=False, now=now)
            return (event,)
        if self.guard.keeps(replica, now=now):
            if replica.protected_from is None and replica.is_routed:
                replica.protected_from = reason
                replica.is_provisional = False
                self.routes.refresh(group)
            return ()
        event = broker_event(EventKind.EXPIRED, replica, reason, now=now)
        self._remove(group, replica, lost=True, now=now)
        return (event,)

    def _fail(self, replica: Replica, *, now: float) -> list[Event]:
        """Take a probe that began to fail: out of the routes, unless the guard keeps it. Returns the guard's events."""
        key, events = replica.identity.group_key, list[Event]()
        replica.protected_from = None
        announced = self.maintenance.covers(key, now=now)
        if not announced and self.guard.might_turn_on(key.cluster):
            events = self._judge(list(self.members()), now=now)
        if not announced and self.guard.keeps(replica, now=now):
            replica.protected_from = Reason.PROBE
        else:
            replica.is_out, replica.is_announced = True, announced
        return events

    def _let_failing_go(self, group: Group, replica: Replica, *, now: float) -> tuple[Event, ...]:
        """Take a replica with a failing probe out of the routes once the guard keeps it no more."""
        if self._keeps(group, replica, now=now):
            return ()
        replica.protected_from = None
        was_told, replica.is_out = replica.is_out, True
        replica.is_announced = self.maintenance.covers(group.key, now=now)
        self.routes.refresh(group)
        told = broker_event(EventKind.SUSPECTED, replica, Reason.PROBE, now=now)
        return () if was_told else (self._told(replica, told),)

    def _told(self, replica: Replica, event: Event) -> Event:
        """An event as the history is to read it: to the routes, a replica that is out is out, whatever it did."""
        if replica.failing_since is None:
            return event
        detail = {**event.detail, "probe": replica.health.detail}
        if not replica.is_out:
            return replace(event, detail=detail)
        if event.kind is not EventKind.SUSPECTED:
            detail["registration"] = event.kind.value
        if replica.is_announced:
            detail["cause"] = Reason.PROBE.value
            return replace(event, kind=EventKind.UNREGISTERED, reason=Reason.MAINTENANCE, detail=detail)
        return replace(event, kind=EventKind.PROBE_FAILED, reason=Reason.PROBE, detail=detail)

    def _tell_unannounced(self, *, now: float) -> list[Event]:
        """Tell of whoever went out in a maintenance window that is over, and still fails: from here on an outage.

        Call it when all that is overdue was removed: one that expires is told of once.
        """
        events: list[Event] = []
        for group, replica in self.members():
            if replica.is_announced and replica.is_out and not self.maintenance.covers(group.key, now=now):
                replica.is_announced = False
                told = broker_event(EventKind.SUSPECTED, replica, Reason.PROBE, now=now)
                events.append(self._told(replica, told))
        return events

    def _tell_heartbeats(self, *, now: float) -> list[Event]:
        events: list[Event] = []
        for _, replica in self.members():
            if not replica.punctuality.is_over(now=now):
                continue
            if replica.punctuality.count:
                detail = replica.punctuality.detail()
                events.append(Event(kind=EventKind.HEARTBEATS, broker=replica.facts(), detail=detail))
            replica.punctuality = Punctuality(now)
            if len(events) == TOLD_A_SWEEP:
                break
        return events

    def _why_expired(self, replica: Replica, *, now: float) -> Reason | None:
        return replica.pulse.why_expired(now=now, rules=self._rules, lenient_since=self._lenient_since)

    def sweep_interval(self) -> float:
        """Seconds until the next sweep should run: at once where the last one left some for it."""
        return 0.0 if self._has_more_overdue else sweep_interval(self._shortest_expiry)

    # --- what operators do ------------------------------------------------------------------------------------

    def set_writable(self, key: GroupKey, writable: bool) -> bool:
        """Wipe the write permission of a group, or give it back; return whether that changed anything.

        A wipe ends with the master's next incarnation, and outlives its absence. Raises BrokerUnknown.
        """
        group, is_writable = self.routes.groups.get(key), key not in self.overrides.wipes
        if group is None and is_writable:
            raise BrokerUnknown(key)
        if writable is is_writable:
            return False
        if writable:
            del self.overrides.wipes[key]
        elif group is not None:
            master = group.replicas.get(MASTER_ID)
            self.overrides.wipes[key] = "" if master is None else master.registration.incarnation
        if group is not None:
            self.routes.refresh(group)
        return True

    def holders(self, topic: str, cluster: str = "") -> list[GroupKey]:
        """The groups that have a topic in the routes, sorted. Raises TopicNotFound."""
        keys = sorted(self.routes.holders(topic, cluster))
        if not keys:
            raise TopicNotFound(topic, cluster)
        return keys

    def hide_topic(self, topic: str, cluster: str = "") -> list[GroupKey]:
        """Hide a topic on every group that has it, until each brings another version of its topics; return those.

        Raises TopicNotFound.
        """
        keys = self.holders(topic, cluster)
        for key in keys:
            group = self.routes.groups[key]
            contributor = group.contributor()
            assert contributor is not None, "a holder has a contributor"
            self.overrides.hide(topic, contributor.registration)
            self.routes.refresh(group, visibly=False)
        return keys

    def evict(
        self, cluster: str, broker_name: str, broker_id: int, *, now: float, detail: Mapping[str, object]
    ) -> tuple[BrokerIdentity, tuple[Event, ...]]:
        """Remove a registration at once; one that lives comes back with its next beat. Raises BrokerUnknown."""
        group = self.routes.groups.get(GroupKey(cluster, broker_name))
        replica = group.replicas.get(broker_id) if group is not None else None
        if group is None or replica is None:
            raise BrokerUnknown(Position(cluster, broker_name, broker_id))
        event = broker_event(EventKind.UNREGISTERED, replica, Reason.ADMIN, now=now, detail=dict(detail))
        self._remove(group, replica, lost=False, now=now)
        return replica.identity, (event,)

    # --- what people ask --------------------------------------------------------------------------------------

    def members(self) -> Iterator[tuple[Group, Replica]]:
        """Every known replica in no order, for a walk that ends before the next call."""
        return ((group, replica) for group in self.routes.groups.values() for replica in group.replicas.values())

    def registration_of(self, identity: BrokerIdentity) -> Registration | None:
        """What the holder of an address and position said last."""
        replica = self._replica(identity)
        return replica.registration if replica is not None and replica.identity.addr == identity.addr else None

    def provisional_count(self) -> int:
        """How many replicas of the snapshot were not heard yet and still have time."""
        return sum(replica.is_provisional for _, replica in self.members())

    def replicas(self, *, cluster: str = "", broker_name: str = "") -> list[tuple[Group, Replica]]:
        """Every known replica, sorted by identity."""
        members = (
            (group, replica)
            for group, replica in self.members()
            if (not cluster or group.key.cluster == cluster)
            and (not broker_name or group.key.broker_name == broker_name)
        )
        return sorted(members, key=lambda member: member[1].identity)

    def clusters(self, cluster: str = "") -> list[tuple[str, list[Group]]]:
        """Clusters and their groups, sorted by name. Raises ClusterNotFound for a name that is not known."""
        found = [(name, groups) for name, groups in self.routes.iter_clusters() if not cluster or name == cluster]
        if cluster and not found:
            raise ClusterNotFound(cluster)
        return found

    def topic_names(self, cluster: str = "") -> list[str]:
        """Names of topics, sorted. Raises ClusterNotFound for a cluster that is not known."""
        if cluster:
            self.clusters(cluster)
        return self.routes.topic_names(cluster)

    # --- within -----------------------------------------------------------------------------------------------

    def _new_replica(self, registration: Registration, holder: Replica | None, *, now: float) -> Replica:
        identity = registration.identity
        if holder is not None:
            known_since, punctuality, failing_since = holder.known_since, holder.punctuality, holder.failing_since
        else:
            before = self.guard.note_back(identity.cluster, identity.position)
            known_since, punctuality, failing_since = now if before is None else before, Punctuality(now), None
        if registration.health.verdict is not ProbeVerdict.FAILING:
            failing_since = None
        elif failing_since is None:
            failing_since = now
        expiry = registration.expiry
        self._shortest_expiry = expiry if self._shortest_expiry is None else min(expiry, self._shortest_expiry)
        return Replica(
            registration=registration,
            generation=self._take_generation(),
            registered_at=now,
            known_since=known_since,
            pulse=Pulse(last_seen=now, heartbeat_interval=registration.heartbeat_interval, expiry=registration.expiry),
            health=registration.health,
            punctuality=punctuality,
            failing_since=failing_since,
        )

    def _end_wipe(self, group: Group, registration: Registration) -> tuple[Event, ...]:
        """A wipe ends with the master's next incarnation."""
        identity, incarnation = registration.identity, registration.incarnation
        if identity.broker_id != MASTER_ID or not self.overrides.ends_wipe(group.key, incarnation):
            return ()
        del self.overrides.wipes[group.key]
        detail: dict[str, object] = {"incarnation": incarnation}
        return (write_perm_event(group.key, Reason.INCARNATION, writable=True, detail=detail),)

    def _refuse_lower_claim(self, registration: Registration, holder: Replica | None, *, now: float) -> None:
        """Two claims on one identity: a lower state version does not displace a holder that is UP."""
        if holder is None or holder.identity.addr == registration.identity.addr or holder.state is not BrokerState.UP:
            return
        held, claimed = holder.registration.data_version, registration.data_version
        if claimed.state_version < held.state_version:
            event = broker_event(
                EventKind.REJECTED,
                holder,
                Reason.STATE_VERSION,
                now=now,
                detail={"claimant_addr": registration.identity.addr, "claimed_data_version": str(claimed)},
            )
            raise IdentityHeld(
                registration.identity, holder_addr=holder.identity.addr, held=held, claimed=claimed, event=event
            )

    def _suspect(self, group: Group, replica: Replica, reason: Reason, *, now: float) -> tuple[Event, ...]:
        if replica.pulse.suspect or replica.is_provisional:
            return ()
        replica.pulse.suspect = True
        if not replica.is_routed:
            return ()
        self.routes.refresh(group)
        return (broker_event(EventKind.SUSPECTED, replica, reason, now=now),)

    def _remove(self, group: Group, replica: Replica, *, lost: bool, now: float) -> None:
        del group.replicas[replica.identity.broker_id]
        self._count -= 1
        self.guard.note_gone(replica, lost=lost, now=now)
        self.routes.refresh(group)

    def _replica(self, identity: BrokerIdentity) -> Replica | None:
        group = self.routes.groups.get(identity.group_key)
        return None if group is None else group.replicas.get(identity.broker_id)

    def _take_generation(self) -> int:
        generation = self._next_generation or 1  # 0 says "none" on the wire
        self._next_generation = (generation + 1) % GENERATIONS
        return generation

    def check_invariants(self) -> None:
        """Hold everything derived against what it derives from; for tests."""
        self.routes.check_invariants()
        replicas = [replica for _, replica in self.members()]
        generations = [replica.generation for replica in replicas]
        assert len(generations) == len(set(generations))
        assert all(generations)
        assert self._count == len(replicas)
        for replica in replicas:
            failing = replica.health.verdict is ProbeVerdict.FAILING
            assert failing == (replica.failing_since is not None)
            assert failing or not replica.is_out
            assert not (failing and replica.protected_from not in {None, Reason.PROBE})


def _is_held_by(replica: Replica, identity: BrokerIdentity, generation: int) -> bool:
    return replica.generation == generation and replica.identity.addr == identity.addr


def _is_renewal(replica: Replica, holder: Replica) -> bool:
    """Whether a registration says nothing that was not known of a living broker."""
    if replica.state is not BrokerState.UP or holder.state is not BrokerState.UP:
        return False
    return replace(replica.registration, health=holder.registration.health) == holder.registration


def _visible(replica: Replica | None) -> object:
    """What clients see of a replica beside its topics."""
    if replica is None:
        return None
    r = replica.registration
    return (r.identity, replica.state, r.ha_addr, r.agent_addr, r.zone, r.acting_master, r.filter_servers)


def _topics(replica: Replica | None) -> object:
    return None if replica is None else replica.registration.topics


def _data_version(replica: Replica | None) -> DataVersion | None:
    return None if replica is None else replica.registration.data_version


def _maintenance_over(key: GroupKey) -> Event:
    return Event(kind=EventKind.MAINTENANCE_OFF, reason=Reason.TIME_OVER, group=key)
