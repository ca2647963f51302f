"""The tables of one observed name server: what it lists, fed with the events of its watches. Pure; time is an argument.

Nothing is judged here, because polling hears no broker: a broker is in the tables while the name server lists it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pointsman_namesrv.core.broker_tables import BrokerTables
from pointsman_namesrv.core.departed import REMEMBER_SECONDS as REMEMBER_TOPICS_SECONDS
from pointsman_namesrv.core.departed import DepartedBroker
from pointsman_namesrv.core.events import BrokerFacts, Event, TopicsPayload
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.guard import Guard, GuardRules
from pointsman_namesrv.core.liveness import Pulse, Punctuality
from pointsman_namesrv.core.model import DataVersion, FromBroker, Health, Position, Registration, TopicTable
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.staging import StagedTopics, staged
from pointsman_namesrv.observe.fleet_view import MAX_BROKERS
from pointsman_namesrv.observe.topic_round import MAX_ENTRIES


class ObservedBrokers(BrokerTables):
    """The brokers that a name server lists, those that it ceased to list, and their topics."""

    hears_brokers = False

    def __init__(self) -> None:
        super().__init__(
            guard=Guard(GuardRules(), hand_over=0.0),
            max_brokers=MAX_BROKERS,
            max_topics=MAX_ENTRIES,
            remember_seconds=REMEMBER_TOPICS_SECONDS,
        )

    def apply(self, events: Iterable[Event], *, now: float) -> None:
        """Apply what was recorded."""
        for event in events:
            if event.broker is None:
                continue
            if event.topics is not None:
                self._take_topics(event.broker, event.topics)
            elif event.broker.state.phase is Phase.GONE:
                self._leave(event.broker, now=now)
            else:
                self._list(event.broker, now=now)
            self.penalties.record(event, now=now, in_window=False)

    def sweep(self, *, now: float) -> None:
        """Forget what is remembered for too long."""
        self.absences.sweep(now=now)

    def _list(self, facts: BrokerFacts, *, now: float) -> None:
        identity = facts.identity
        group = self.routes.groups.get(identity.group_key) or Group(identity.group_key)
        holder = group.replicas.get(identity.broker_id)
        held, version = self._topics_of(group, identity.position)
        registration = Registration(
            identity=identity,
            topics=held,
            data_version=version,
            zone=facts.zone,
            from_broker=FromBroker(),
        )
        replica = Replica(
            registration=registration,
            generation=0,
            registered_at=now,
            alive_since=None,
            pulse=Pulse(last_seen=now, heartbeat_interval=registration.heartbeat_interval, expiry=registration.expiry),
            health=Health(),
            punctuality=Punctuality(now),
            state=facts.state,
            state_since=None if facts.state_for is None else now - facts.state_for,
        )
        if holder is not None:
            if holder.registration == registration:
                holder.state_since = replica.state_since
                return
            self.held.count(holder, -1)
        self.held.count(replica, 1)
        self.departed.drop(identity.position)
        group.replicas[identity.broker_id] = replica
        self.addresses.add(replica, holder, now=now)
        self.routes.refresh(group)
        self.absences.make_room()

    def _leave(self, facts: BrokerFacts, *, now: float) -> None:
        group, replica = self.routes.groups.get(facts.identity.group_key), self.replica_of(facts.identity)
        if group is None or replica is None:
            return
        del group.replicas[facts.identity.broker_id]
        self.held.count(replica, -1)
        self.addresses.discard(replica)
        if not facts.state.planned:
            self.departed.note(DepartedBroker(replica.registration, facts.state.reason, now))
        self.routes.refresh(group)

    def _take_topics(self, facts: BrokerFacts, payload: TopicsPayload) -> None:
        """Give all replicas of a broker name the topics that its routes have."""
        group = self.routes.groups.get(facts.identity.group_key)
        if group is None:
            return
        held, version = self._topics_of(group, facts.identity.position)
        if payload.base is None:
            difference = staged(payload.changed, held=held)
        else:
            rest = {topic: queues for topic, queues in held.items() if topic not in payload.removed}
            difference = StagedTopics({**rest, **payload.changed}, held, payload.changed, payload.removed)
        version = facts.data_version or version
        for replica in group.replicas.values():
            self.held.count(replica, -1)
            replica.registration = replace(replica.registration, topics=difference.topics, data_version=version)
            self.held.count(replica, 1)
        self.routes.refresh(group, visibly=False, staged=difference)
        self.absences.make_room()

    def _topics_of(self, group: Group, position: Position) -> tuple[TopicTable, DataVersion]:
        """Return the topics of a broker name: of its replicas, else those with which the position was lost."""
        known = next(iter(group.replicas.values()), None) or self.departed.get(position)
        return ({}, DataVersion()) if known is None else (known.registration.topics, known.registration.data_version)
