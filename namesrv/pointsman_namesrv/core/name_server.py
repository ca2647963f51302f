"""The name server as a state machine: registrations, heartbeats and time in; events and responses out.

Every method is synchronous and runs to its end, so there is no lock and no caller sees a half-made route. Time is
``now``, monotonic seconds of the caller's choice. A method that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from pointsman.wire.refusals import FieldViolation, refuse_if_any, shown
from pointsman_namesrv.core.addresses import refuse_lower_claim, superseded_by
from pointsman_namesrv.core.broker_events import (
    OUTLIVED_WINDOW,
    address_conflict_event,
    broker_event,
    delta_event,
    heartbeats_event,
    registration_event,
    topics_event,
    transition_event,
)
from pointsman_namesrv.core.broker_responses import (
    BeatAnswer,
    BeatStatus,
    Registered,
    StatsResponse,
    StatsStatus,
    TopicsUpdated,
    UnregisterResponse,
    UnregisterStatus,
)
from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.departed import REMEMBER_SECONDS, DepartedBroker
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.guard import Guard, GuardRules
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.liveness import LivenessRules, Pulse, Punctuality, sweep_interval
from pointsman_namesrv.core.model import (
    MASTER_ID,
    BrokerIdentity,
    DataVersion,
    Evidence,
    GroupKey,
    Health,
    Position,
    QueueConfig,
    Reason,
    Registration,
    TopicTable,
)
from pointsman_namesrv.core.node_refusals import (
    BrokerUnknown,
    LimitExceeded,
    StaleDataVersion,
    StaleGeneration,
)
from pointsman_namesrv.core.replica_state import UP, Facts, Phase, ReplicaState, replica_state
from pointsman_namesrv.core.reported_queue_stats import QueueStats
from pointsman_namesrv.core.staging import StagedTopics, staged
from pointsman_namesrv.core.static_topics import NO_STATIC_TOPICS, QueueMapping

GENERATIONS = 2**64
MAX_ROWS_PER_SWEEP = 500
"""Maximum heartbeat rows per sweep. A fleet that started at the same moment is spread over a few sweeps."""
MAX_OVERDUE_PER_SWEEP = 200
"""Maximum overdue brokers per sweep. The next sweep follows immediately; queries are served in between."""
PAUSE_SECONDS = 1.0
"""Shortest own pause recorded as NAMESRV_PAUSED, seconds. Shorter pauses are still compensated."""


class NameServer(BrokerTables):
    """All registered brokers and the routes that follow from them.

    ``first_generation`` is random for each run, so that a fence of an earlier run does not match by chance.
    ``started_at``: monotonic time of the start. Without a ``lifecycle`` there is no warm-up.
    """

    def __init__(
        self,
        *,
        rules: LivenessRules,
        first_generation: int,
        started_at: float,
        guard_rules: GuardRules | None = None,
        lifecycle: NodeLifecycle | None = None,
        max_brokers: int = 10_000,
        max_topics: int = 500_000,
        every_heartbeat: bool = False,
        remember_seconds: float = REMEMBER_SECONDS,
    ) -> None:
        super().__init__(
            guard=Guard(guard_rules or GuardRules(), hand_over=rules.hand_over),
            max_brokers=max_brokers,
            max_topics=max_topics,
            remember_seconds=remember_seconds,
        )
        self._rules = rules
        self._lifecycle = lifecycle
        self._next_generation = first_generation % GENERATIONS
        self._lenient_since = started_at
        self._has_more_overdue = False
        self._shortest_expiry: float | None = None
        """At most the shortest declared expiry; exact after each sweep."""
        self._every_heartbeat = every_heartbeat

    # --- calls of brokers -------------------------------------------------------------------------------------

    def held_topics(self, identity: BrokerIdentity) -> TopicTable:
        """Return the topics to compare a registration with: those of its position, else those of its group."""
        group = self.routes.groups.get(identity.group_key)
        if group is None:
            return {}
        replica = group.replicas.get(identity.broker_id) or group.contributor()
        return {} if replica is None else replica.registration.topics

    def register(
        self, registration: Registration, *, now: float, topics: StagedTopics | None = None, peer: str = ""
    ) -> Registered:
        """Accept a broker's complete state in place of what its identity and address held before.

        ``topics``: those of the registration, already compared with :meth:`held_topics`; without it they are compared
        here. ``peer``: who registers, as bounds distinguish peers. Raises IdentityHeld when another address that is UP
        holds the identity with a higher state version, and LimitExceeded.
        """
        identity = registration.identity
        group = self.routes.groups.get(identity.group_key) or Group(identity.group_key)
        holder = group.replicas.get(identity.broker_id)
        refuse_lower_claim(registration, holder, now=now)
        vacated = group.at_addr(identity.addr)
        if vacated is holder:
            vacated = None
        if topics is None:
            topics = staged(registration.topics, held=self.held_topics(identity))
        earlier = self.addresses.replaced_by(registration, holder, now=now)
        replaced = [replica for replica in (holder, vacated, *earlier) if replica is not None]
        self.held.refuse_beyond(peer, registration, topics=topics.topics, replaced=replaced)
        if registration.topics is not topics.topics:
            registration = replace(registration, topics=topics.topics)
        events: list[Event] = []
        if vacated is not None:
            events += self._leave(group, vacated, Reason.SUPERSEDED, now=now, detail=superseded_by(identity))
        events += self._supersede(((old, identity) for old in earlier), now=now)
        replica = self._new_replica(registration, holder, now=now)
        replica.peer = peer
        if holder is not None:
            self.held.count(holder, -1)
        self.held.count(replica, 1)
        self.departed.drop(identity.position)
        group.replicas[identity.broker_id] = replica
        sharing = self.addresses.add(replica, holder, now=now)
        self.routes.groups[group.key] = group
        recovered = holder is not None and holder.failing_since is not None and replica.failing_since is None
        ended = self.overrides.end_wipe(registration, recovered=recovered)
        ended = ended or self.overrides.end_wipe_of_version(registration)
        self.overrides.follow_incarnation(registration)
        if replica.failing_since is not None and (holder is None or holder.failing_since is None):
            events += self._judge_failure(replica, now=now)
        self._settle(replica, now=now)
        reappears = group.contributor() is replica and self.overrides.end_tombstones(registration)
        is_new_version = holder is None or registration.data_version != holder.registration.data_version
        disappears = group.key in self.overrides.tombstones and is_new_version
        visibly = vacated is not None or bool(ended) or replica.visible != (None if holder is None else holder.visible)
        has_other_topics = holder is None or not registration.shares_topics_with(holder.registration)
        if visibly or reappears or disappears or has_other_topics:
            self.routes.refresh(group, visibly=visibly, staged=topics)
        if holder is None or not replica.renews(holder):
            events.append(registration_event(replica, holder=holder, vacated=vacated, earlier=earlier, now=now))
        topics_row = topics_event(replica, topics, holder=holder, now=now)
        if topics_row is not None:
            events.append(topics_row)
        events += [address_conflict_event(each, self.addresses.others(each.identity), now=now) for each in sharing]
        self.absences.make_room()
        view = replace(group.view_for(identity.broker_id), also_at_addr=self.addresses.others(identity))
        return Registered(replica.generation, view, (*events, *ended), tuple(old.identity for old in earlier))

    def restore(self, registration: Registration, generation: int, *, now: float) -> None:
        """Restore a broker of the snapshot: routed and PROVISIONAL for one expiry, until a heartbeat arrives.

        Does nothing if another broker holds the position. The generation is kept, so that the agent confirms it with a
        heartbeat and a restart causes no registrations.
        """
        key = registration.identity.group_key
        group = self.routes.groups.get(key) or Group(key)
        if registration.identity.broker_id in group.replicas or group.at_addr(registration.identity.addr) is not None:
            return
        if registration.from_broker is not None:
            # Its registrations only add: topics deleted after the snapshot was written would return for good.
            registration = registration.without(self.overrides.tombstones.get(key, {}))
        topics = staged(registration.topics, held=self.held_topics(registration.identity))
        replica = self._new_replica(replace(registration, topics=topics.topics), None, now=now)
        replica.generation = generation
        if replica.failing_since is not None:
            # The snapshot has no time for it: before any window of the guard.
            replica.failing_since = -inf
        replica.alive_since = None if registration.health.ever_passed is False else now - registration.expiry
        replica.is_provisional = True
        self._settle(replica, now=now)
        if not replica.is_routed:
            replica.state_since = None
        self.departed.drop(registration.identity.position)
        group.replicas[registration.identity.broker_id] = replica
        self.addresses.add(replica, now=-inf)
        self.held.count(replica, 1)
        self.routes.refresh(group, staged=topics)
        self.absences.make_room()

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
        now: float,
        keeps_wipe: bool = False,
        mappings: Mapping[str, QueueMapping] = NO_STATIC_TOPICS.mappings,
    ) -> TopicsUpdated:
        """Apply a delta to a registered topic set; ``keeps_wipe``: see :meth:`Overrides.keep_wipe`.

        ``mappings``: of static topics, new or changed; one of a topic that is not held is ignored.

        Raises BrokerUnknown, StaleGeneration, StaleDataVersion, InvalidRequest for a removed topic that is not held,
        and LimitExceeded for a set of more than ``max_topics``, or at the bound of the node.
        """
        replica = self.replica_of(identity)
        if replica is None:
            raise BrokerUnknown(identity)
        if not replica.is_held_by(identity, generation):
            raise StaleGeneration(identity, generation=generation, holder_addr=replica.identity.addr)
        held = replica.registration
        if held.data_version != base:
            raise StaleDataVersion(identity, held=held.data_version, base=base)
        gone = tuple(removed)
        unknown = [
            FieldViolation(f"removed[{i}]", f"is not a topic of this broker: {shown(topic)}")
            for i, topic in enumerate(gone)
            if topic not in held.topics
        ]
        refuse_if_any(unknown)
        topics = {**held.topics, **changed}
        for topic in gone:
            del topics[topic]
        if len(topics) > max_topics:
            raise LimitExceeded("topics_per_broker", max_topics, field="changed", value=len(topics))
        static = held.static_topics.merged(mappings, topics)
        self.held.change_topics(replica, topics, static)
        replica.registration = replace(held, topics=topics, data_version=data_version, static_topics=static)
        group = self.routes.groups[identity.group_key]
        if group.contributor() is replica:
            self.overrides.end_tombstones(replica.registration)
        if keeps_wipe:
            self.overrides.keep_wipe(held, replica.registration)
        ended = self.overrides.end_wipe_of_version(replica.registration) if data_version != base else ()
        delta = StagedTopics(topics, held.topics, changed, gone)
        self.routes.refresh(group, visibly=bool(ended), staged=delta)
        self.absences.make_room()
        return TopicsUpdated(len(topics), (delta_event(replica, changed, gone, base=base, now=now), *ended))

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
        """Record one heartbeat with the probe's result. ``stream`` distinguishes KeepAlive streams.

        ``clock_ahead_ms``: how far the agent's wall clock is ahead of this server's, if the heartbeat reports it.
        """
        group = self.routes.groups.get(identity.group_key)
        replica = group.replicas.get(identity.broker_id) if group is not None else None
        if group is None or replica is None:
            return BeatAnswer(BeatStatus.UNKNOWN_BROKER)
        if not replica.is_held_by(identity, generation):
            return BeatAnswer(BeatStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        events = self._record_heartbeat(group, replica, health, stream=stream, hand_over=hand_over, now=now)
        if clock_ahead_ms is not None:
            replica.punctuality.add_clock(clock_ahead_ms)
        view = group.view_for(identity.broker_id)
        if replica.shares_addr_since is not None:
            if hand_over or events:
                events = (*events, *self._supersede(self.addresses.superseded(identity.addr, now=now), now=now))
            view = replace(view, also_at_addr=self.addresses.others(identity))
        held = replica.registration.data_version
        if held != data_version:
            return BeatAnswer(BeatStatus.TOPICS_OUT_OF_DATE, view, held_data_version=held, events=events)
        return BeatAnswer(BeatStatus.OK, view, events=events)

    def _record_heartbeat(
        self, group: Group, replica: Replica, health: Health, *, stream: int | None, hand_over: bool, now: float
    ) -> tuple[Event, ...]:
        before, pulse = replica.state, replica.pulse
        was_failing, was_provisional = replica.health.failing is not None, replica.is_provisional
        silence, is_late = now - pulse.last_seen, pulse.is_late(now=now)
        replica.punctuality.add(silence, is_late=is_late)
        pulse.beat(now=now, stream=stream, hand_over=hand_over)
        is_new_failure = replica.record_health(health, now=now)
        replica.is_provisional = False
        events: list[Event] = []
        if before.phase is Phase.UP and health.failing is None:
            # Nearly every heartbeat takes this path: UP stays UP.
            if is_late:
                events.append(broker_event(EventKind.LATE_HEARTBEAT, replica, now=now, interval=silence))
        else:
            if is_new_failure:
                events += self._judge_failure(replica, now=now)
            if was_failing and health.failing is None and replica.identity.broker_id == MASTER_ID:
                # Topics that it registered while it was not routed become the group's now.
                self.overrides.end_tombstones(replica.registration)
            events += self._apply_heartbeat(
                group, replica, was_failing=was_failing, was_provisional=was_provisional, silence=silence, now=now
            )
        if self._every_heartbeat:
            events.append(broker_event(EventKind.HEARTBEAT, replica, now=now, interval=silence))
        return tuple(events)

    def _apply_heartbeat(
        self, group: Group, replica: Replica, *, was_failing: bool, was_provisional: bool, silence: float, now: float
    ) -> list[Event]:
        """Apply the state of a replica that was not plainly up when its heartbeat arrived."""
        before, events = replica.state, list[Event]()
        self._settle(replica, now=now)
        # Brokers of the snapshot too: their wipe may be older than the process that the snapshot stored.
        ended = self.overrides.end_wipe(replica.registration, recovered=was_failing and replica.health.failing is None)
        if replica.state.phase is not before.phase or ended:
            self.routes.refresh(group)
        if was_provisional:
            events.append(broker_event(EventKind.REREGISTERED, replica, Reason.SNAPSHOT, now=now, interval=silence))
        elif replica.state.phase is Phase.UP:
            reason = Reason.PROBE if was_failing else Reason.HEARTBEAT
            events.append(broker_event(EventKind.RECOVERED, replica, reason, now=now, interval=silence))
        elif replica.state != before:
            events.append(transition_event(replica, now=now, interval=silence))
        return [*events, *ended]

    def vouch(self, identity: BrokerIdentity, *, now: float) -> tuple[Event, ...]:
        """Record a frame of a broker itself, whose agent holds the registration. It counts as a heartbeat alone.

        Raises BrokerUnknown.
        """
        group, replica = self.routes.groups.get(identity.group_key), self.replica_of(identity)
        if group is None or replica is None or replica.identity != identity:
            raise BrokerUnknown(identity)
        silence = now - replica.pulse.last_seen
        replica.vouch(now=now)
        was_provisional, replica.is_provisional = replica.is_provisional, False
        if replica.state.phase is Phase.UP:
            return ()
        is_failing = replica.health.failing is not None
        is_new = was_provisional and not is_failing
        return tuple(
            self._apply_heartbeat(
                group, replica, was_failing=is_failing, was_provisional=is_new, silence=silence, now=now
            )
        )

    def end_stream(
        self, identity: BrokerIdentity, generation: int, *, stream: int, now: float, by_us: bool = False
    ) -> tuple[Event, ...]:
        """Record the end of a KeepAlive stream.

        A stream that this server ended does not count against the broker. Neither does one that ends within an expiry
        of this server's start or pause, because its agent may have timed out on this server. Then only silence counts.
        """
        group = self.routes.groups.get(identity.group_key)
        replica = self.replica_of(identity)
        if group is None or replica is None or not replica.is_held_by(identity, generation):
            return ()
        if by_us or now - self._lenient_since <= replica.pulse.expiry:
            replica.pulse.clear_stream(stream, now=now)
            return ()
        if not replica.pulse.break_stream(stream, now=now):
            return ()
        events = self._supersede(self.addresses.superseded(identity.addr, now=now), now=now)
        if replica.state.phase is not Phase.GONE:
            events += self._apply(group, replica, now=now)
        return tuple(events)

    def unregister(
        self, identity: BrokerIdentity, generation: int, *, reason: Reason, now: float
    ) -> UnregisterResponse:
        """Unregister a broker for a planned shutdown; a stale generation changes nothing."""
        group = self.routes.groups.get(identity.group_key)
        replica = self.replica_of(identity)
        if group is None or replica is None:
            return UnregisterResponse(UnregisterStatus.UNKNOWN_BROKER)
        if not replica.is_held_by(identity, generation):
            return UnregisterResponse(UnregisterStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        events = self._leave(group, replica, reason, now=now)
        self.routes.refresh(group)
        return UnregisterResponse(UnregisterStatus.UNREGISTERED, events=tuple(events))

    def report_queue_stats(
        self, identity: BrokerIdentity, generation: int, stats: QueueStats, *, now: float
    ) -> StatsResponse:
        """Emit an agent's measurements of its broker's queues. They are not stored and do not count as a heartbeat."""
        replica = self.replica_of(identity)
        if replica is None:
            return StatsResponse(StatsStatus.UNKNOWN_BROKER)
        if not replica.is_held_by(identity, generation):
            return StatsResponse(StatsStatus.STALE_GENERATION, holder_addr=replica.identity.addr)
        event = Event(kind=EventKind.QUEUE_STATS, broker=replica.facts(now=now), detail=stats.detail())
        return StatsResponse(StatsStatus.RECORDED, events=(event,))

    # --- time -------------------------------------------------------------------------------------------------

    def sweep(self, *, now: float) -> tuple[Event, ...]:
        """Apply the state of every replica that is not plainly up, the longest silent first.

        A plain loop: 10,000 brokers take a few milliseconds, less than updating a heap with each heartbeat.
        """
        events = self.absences.sweep(now=now)
        events += self._supersede(self.addresses.all_superseded(MAX_OVERDUE_PER_SWEEP, now=now), now=now)
        members = list(self.members())
        events += self._judge(members, now=now)
        unsettled = [
            (group, replica)
            for group, replica in members
            if replica.state.phase is not Phase.UP or not replica.pulse.is_healthy(now=now)
        ]
        unsettled.sort(key=lambda member: member[1].pulse.last_seen)
        most = len(events) + MAX_OVERDUE_PER_SWEEP
        self._has_more_overdue = self.absences.has_more
        for group, replica in unsettled:
            if len(events) >= most:
                self._has_more_overdue = True
                break
            events += self._apply(group, replica, now=now)
        self._shortest_expiry = min((replica.pulse.expiry for _, replica in self.members()), default=None)
        return (*events, *self._close_heartbeats(now=now))

    def credit_pause(self, seconds: float, *, now: float) -> tuple[Event, ...]:
        """Extend every deadline by a pause of this process that ends now: no heartbeat could be received in it."""
        for _, replica in self.members():
            replica.pulse.credit_pause(seconds, now=now)
        self.guard.credit_pause(seconds)
        if seconds < PAUSE_SECONDS:
            return ()
        self._lenient_since = now
        return (Event(kind=EventKind.NAMESRV_PAUSED, detail={"seconds": round(seconds, 3)}),)

    def _judge(self, members: list[tuple[Group, Replica]], *, now: float) -> list[Event]:
        """Let the guard count all members again. Replicas that it keeps from now on return with the next sweep."""
        covered = ((replica, self.maintenance.covers(group.key, now=now)) for group, replica in members)
        events = self.guard.judge(covered, now=now)
        self._has_more_overdue |= any(event.kind is EventKind.GUARD_ON for event in events)
        return events

    def _judge_failure(self, replica: Replica, *, now: float) -> list[Event]:
        """Count again when a probe begins to fail, if that could turn the guard on."""
        key = replica.identity.group_key
        is_counted = replica.health.failing is Evidence.WEAK and not self.maintenance.covers(key, now=now)
        if not is_counted or not self.guard.might_turn_on(key.cluster):
            return []
        return self._judge(list(self.members()), now=now)

    # --- the one place that applies a state -------------------------------------------------------------------

    def _apply(self, group: Group, replica: Replica, *, now: float) -> list[Event]:
        """Apply the state that follows from a replica's facts; on a change update the routes and emit an event."""
        before, after = replica.state, replica_state(self._facts(replica, now=now))
        if after == before:
            return []
        if after.phase is Phase.GONE:
            events = self._remove(group, replica, after, now=now)
            assert after.reason is not None, "a lost replica has a reason"
            self.departed.note(DepartedBroker(replica.registration, after.reason, now, planned=after.planned))
        else:
            replica.enter(after, now=now)
            outlived = {OUTLIVED_WINDOW: True} if before.planned and after.phase is Phase.OUT else None
            events = [transition_event(replica, now=now, detail=outlived)]
        if after.phase is not before.phase:
            self.routes.refresh(group)
        return events

    def _settle(self, replica: Replica, *, now: float) -> None:
        """Apply the state of a replica after its heartbeat; the caller updates the routes and emits the event."""
        replica.enter(replica_state(self._facts(replica, now=now)), now=now)

    def _leave(
        self, group: Group, replica: Replica, reason: Reason, *, now: float, detail: Mapping[str, object] | None = None
    ) -> list[Event]:
        """End a registration other than by time; the caller updates the routes.

        It is retired, not lost. If it provided its group's topics, those of replicas that were lost before it are
        forgotten too.
        """
        if self.routes.registration_behind(group.key) is replica.registration:
            self.departed.forget_topics_of(group.key)
        self.departed.drop(replica.identity.position)
        return self._remove(group, replica, replica_state(Facts(unregistered=reason)), now=now, detail=detail)

    def _supersede(self, ended: Iterable[tuple[Replica, BrokerIdentity]], *, now: float) -> list[Event]:
        """End registrations whose address another identity has."""
        events: list[Event] = []
        for replica, by in ended:
            group = self.routes.groups[replica.identity.group_key]
            events += self._leave(group, replica, Reason.SUPERSEDED, now=now, detail=superseded_by(by))
            self.routes.refresh(group)
        return events

    def _remove(
        self,
        group: Group,
        replica: Replica,
        state: ReplicaState,
        *,
        now: float,
        detail: Mapping[str, object] | None = None,
    ) -> list[Event]:
        heartbeats = heartbeats_event(replica, now=now)
        replica.enter(state, now=now)
        del group.replicas[replica.identity.broker_id]
        self.held.count(replica, -1)
        self.addresses.discard(replica)
        self.guard.note_departed(replica, now=now)
        assert state.reason is not None, "a removal has a reason"
        ended = self.overrides.note_departure(
            replica.registration, state.reason, failing=replica.failing_since is not None
        )
        return [*heartbeats, transition_event(replica, now=now, detail=detail), *ended]

    def _facts(self, replica: Replica, *, now: float) -> Facts:
        pulse, failing = replica.pulse, replica.health.failing
        expired = pulse.why_expired(now=now, rules=self._rules, lenient_since=self._lenient_since)
        suspect = pulse.why_suspect(now=now)
        if expired is None and failing is None:  # then neither window nor guard matters
            return Facts(is_provisional=replica.is_provisional, suspect=suspect)
        in_window = self.maintenance.covers(replica.identity.group_key, now=now)
        is_kept = not in_window and self.guard.protects(replica, now=now)
        return Facts(None, expired, failing, replica.is_provisional, suspect, in_window, is_kept)

    # --- rows of heartbeats -----------------------------------------------------------------------------------

    def close_heartbeats(self, replica: Replica, *, now: float) -> tuple[Event, ...]:
        """End a replica's row of heartbeats and begin the next one."""
        events = heartbeats_event(replica, now=now)
        replica.punctuality = Punctuality(now)
        return events

    def _close_heartbeats(self, *, now: float) -> list[Event]:
        events: list[Event] = []
        for _, replica in self.members():
            if replica.punctuality.is_over(now=now):
                events += self.close_heartbeats(replica, now=now)
            if len(events) == MAX_ROWS_PER_SWEEP:
                break
        return events

    def sweep_interval(self) -> float:
        """Return the seconds until the next sweep: 0 if the last one left brokers for it."""
        return 0.0 if self._has_more_overdue else sweep_interval(self._shortest_expiry)

    # --- calls of operators -----------------------------------------------------------------------------------

    def evict(
        self, cluster: str, broker_name: str, broker_id: int, *, now: float, detail: Mapping[str, object]
    ) -> tuple[BrokerIdentity, tuple[Event, ...]]:
        """Remove a registration immediately, or retire a broker that was lost. Raises BrokerUnknown.

        A running broker returns with its next heartbeat.
        """
        key, position = GroupKey(cluster, broker_name), Position(cluster, broker_name, broker_id)
        group = self.routes.groups.get(key) or Group(key)
        replica = group.replicas.get(broker_id)
        if replica is None:
            return self.absences.retire(position, detail=detail)
        events = self._leave(group, replica, Reason.ADMIN, now=now, detail=detail)
        self.routes.refresh(group)
        return replica.identity, tuple(events)

    # --- internals --------------------------------------------------------------------------------------------

    def _new_replica(self, registration: Registration, holder: Replica | None, *, now: float) -> Replica:
        identity = registration.identity
        if holder is not None:
            alive_since, punctuality = holder.alive_since, holder.punctuality
        else:
            alive_since, punctuality = self.guard.note_back(identity.cluster, identity.position), Punctuality(now)
        if alive_since is None and not (registration.health.failing and registration.health.ever_passed is False):
            # A broker that registers for the first time during the warm-up was alive before.
            is_known_of_old = holder is None and self._lifecycle is not None and not self._lifecycle.is_warmed_up
            alive_since = now - registration.expiry if is_known_of_old else now
        expiry = registration.expiry
        self._shortest_expiry = expiry if self._shortest_expiry is None else min(expiry, self._shortest_expiry)
        replica = Replica(
            registration=registration,
            generation=self._take_generation(),
            registered_at=now,
            alive_since=alive_since,
            pulse=Pulse(last_seen=now, heartbeat_interval=registration.heartbeat_interval, expiry=registration.expiry),
            health=Health() if holder is None else holder.health,
            punctuality=punctuality,
            failing_since=None if holder is None else holder.failing_since,
            left_in_window=holder is not None and holder.left_in_window,
            state=UP if holder is None else holder.state,
            state_since=now if holder is None else holder.state_since,
        )
        replica.record_health(registration.health, now=now)
        return replica

    def _take_generation(self) -> int:
        generation = self._next_generation or 1  # 0 says "none" on the wire
        self._next_generation = (generation + 1) % GENERATIONS
        return generation

    def check_invariants(self) -> None:
        """Compare everything derived with what it derives from; for tests."""
        self.routes.check_invariants()
        replicas = [replica for _, replica in self.members()]
        generations = [replica.generation for replica in replicas]
        assert len(generations) == len(set(generations))
        assert all(generations)
        self.held.check_invariants(replicas)
        self.addresses.check_invariants(replicas)
        for replica in replicas:
            is_failing = replica.health.failing is not None
            assert is_failing == (replica.failing_since is not None)
            assert replica.state.phase is not Phase.GONE
            assert is_failing or replica.state.phase is not Phase.OUT
            assert replica.state.planned <= (replica.state.phase is Phase.OUT)
