"""Registrations by RocketMQ brokers themselves, over RocketMQ's own wire, in the terms of the core.

A registration there never states whether it is complete: a table, a chunk of it and one topic look alike. So each only
adds topics. A topic ends with its broker, by a deletion, or when the broker returns with another store. Where an agent
holds a registration, the frames of its broker count as heartbeats and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pointsman.names import MIN_EXPIRY_INTERVALS, addr_problem, registered_name_problem
from pointsman.wire.refusals import InvalidRequest, shown
from pointsman_namesrv.core.broker_responses import BeatStatus
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.group import Group, MemberView, Replica
from pointsman_namesrv.core.model import (
    BrokerIdentity,
    DataVersion,
    FromBroker,
    GroupKey,
    QueueConfig,
    Reason,
    Registration,
    TopicTable,
)
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import FirstOfOneTopic, HeldByAgent, LimitExceeded, NotUnregistered
from pointsman_namesrv.core.request_rules import IntervalBounds, registration_violations, topic_violations
from pointsman_namesrv.core.staging import StagedTopics, Staging, staged
from pointsman_namesrv.core.static_topics import (
    MAX_QUEUES_PER_BROKER,
    QUEUES_LIMIT,
    QueueMapping,
    StaticTopics,
    queue_count,
    static_topics,
)

INTERVAL, EXPIRY = 30.0, 120.0
"""Expiry of a broker that declares none (``registerNameServerPeriod``, ``DEFAULT_BROKER_CHANNEL_EXPIRED_TIME``)."""
FAST_INTERVAL = 1.0
"""Interval of a broker that declares a timeout: it sends BROKER_HEARTBEAT every second
(``brokerHeartbeatInterval``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A registration without its topics."""

    identity: BrokerIdentity
    data_version: DataVersion = DataVersion()
    timeout: float | None = None
    """Seconds of silence after which the broker expires, if it declares them (``heartbeatTimeoutMillis``)."""
    acting_master: bool = False
    ha_addr: str = ""
    zone: str = ""
    broker_version: str = ""
    filter_servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """Result of a registration or a heartbeat."""

    registration: Registration
    """The registration that is held now."""
    view: MemberView
    events: tuple[Event, ...]


class Incoming:
    """Topics of a registration that is being read, compared with those held. An invalid topic is skipped alone."""

    def __init__(self, held: TopicTable, *, max_topics: int) -> None:
        self.held = held
        self.staging = Staging(held)
        self.bad_topics = 0
        self.first_bad = ""
        """Violation of the first invalid topic."""
        self.mappings: dict[str, QueueMapping] = {}
        """Of static topics."""
        self.unmapped: frozenset[str] = frozenset()
        """Static topics whose mapping is invalid. Without it clients would send to other queues than they mean, so
        these topics are not added."""
        self._max_topics = max_topics
        self._checked: dict[tuple[int, ...], QueueConfig] = {}

    def add(self, topics: Mapping[str, tuple[int, int, int, int, int]]) -> None:
        """Add the next topics. Raises LimitExceeded."""
        good: dict[str, QueueConfig] = {}
        for topic, numbers in topics.items():
            queues = self.held.get(topic)
            if queues is None or queues != numbers:
                checked = self._checked.get(numbers)
                if checked is None or (queues is None and registered_name_problem(topic) is not None):
                    checked = self._check(topic, numbers)
                    if checked is None:
                        continue
                queues = checked
            good[sys.intern(topic)] = queues
        self.staging.add(good)
        if len(self.staging.topics) > self._max_topics:
            raise LimitExceeded("topics_per_broker", self._max_topics)

    def add_mappings(self, mappings: Mapping[str, QueueMapping], unmapped: Collection[str]) -> None:
        """Add the mappings of static topics; ``unmapped``: topics whose mapping could not be read.

        Raises LimitExceeded.
        """
        if (count := queue_count(mappings)) > MAX_QUEUES_PER_BROKER:
            raise LimitExceeded(QUEUES_LIMIT, MAX_QUEUES_PER_BROKER, field="topicQueueMappingInfoMap", value=count)
        invalid = set(unmapped)
        for topic, mapping in mappings.items():
            problem = mapping.problem(topic)
            if problem is None:
                self.mappings[sys.intern(topic)] = mapping
            else:
                invalid.add(topic)
                self.first_bad = self.first_bad or f"the mapping of static topic {shown(topic)}: {problem}"
        self.bad_topics += len(invalid)
        self.unmapped = frozenset(invalid)

    def _check(self, topic: str, numbers: tuple[int, int, int, int, int]) -> QueueConfig | None:
        queues = QueueConfig(*numbers)
        fault = next(topic_violations(topic, queues, path="topic"), None)
        if fault is None:
            self._checked[numbers] = queues
            return queues
        self.bad_topics += 1
        self.first_bad = self.first_bad or f"{fault.field} {fault.description}"
        return None


class AdditiveRegistrations:
    """Registrations of brokers without an agent."""

    def __init__(self, core: NameServer, *, bounds: IntervalBounds, max_topics: int) -> None:
        self._core = core
        self._bounds = bounds
        self._max_topics = max_topics

    def begin(self, identity: BrokerIdentity) -> Incoming:
        """Begin to read the topics of a registration."""
        return Incoming(self._core.held_topics(identity), max_topics=self._max_topics)

    def register(self, claim: Claim, incoming: Incoming, *, stream: int, now: float, is_part: bool = False) -> Accepted:
        """Accept a registration; ``is_part``: topics that are already held were left out of it.

        Raises InvalidRequest, IdentityHeld, HeldByAgent, LimitExceeded, FirstOfOneTopic.
        """
        identity = claim.identity
        violations = list(registration_violations(self._registration(claim), bounds=self._bounds))
        if violations:
            raise InvalidRequest(violations)
        holder = self._holder(identity)
        if (
            holder is not None
            and holder.registration.from_broker is None
            and not holder.pulse.is_left_to_broker(now=now)
        ):
            return self._vouched(claim, holder, now=now)
        if holder is None or holder.identity != identity:
            return self._first(claim, incoming, stream=stream, now=now)
        held = holder.registration
        if _is_another_store(claim.data_version, held.data_version):
            if len(incoming.staging.topics) == 1:
                return self._beat(held, stream=stream, now=now)
            topics = self._staged(incoming, incoming.unmapped, held=incoming.held)
            static = static_topics(incoming.mappings, topics.topics)
            return self._replace(claim, topics, static, stream=stream, now=now)
        changed = _without(self._changed(incoming, held.topics), self._deleted(claim) | incoming.unmapped)
        room = self._max_topics - len(held.topics)
        if len(changed) > room and sum(topic not in held.topics for topic in changed) > room:
            raise LimitExceeded("topics_per_broker", self._max_topics)
        if held != self._registration(claim, held):
            table = {**held.topics, **changed} if changed else held.topics
            static = held.static_topics.merged(incoming.mappings, table)
            return self._replace(claim, StagedTopics(table, held.topics, changed), static, stream=stream, now=now)
        events: tuple[Event, ...] = ()
        if changed or claim.data_version != held.data_version or self._remaps(incoming, held):
            events = self._core.update_topics(
                identity,
                holder.generation,
                base=held.data_version,
                data_version=claim.data_version,
                changed=dict(changed),
                removed=(),
                max_topics=self._max_topics,
                now=now,
                keeps_wipe=len(incoming.staging.topics) == 1 and not is_part,
                mappings=incoming.mappings,
            ).events
        beaten = self._beat(self._registration_of(identity), stream=stream, now=now)
        return replace(beaten, events=(*events, *beaten.events))

    def renew(self, registration: Registration, *, stream: int, now: float) -> Accepted | None:
        """Accept a registration without changes; None: it is no longer held and must be read."""
        if self._core.registration_of(registration.identity) is not registration:
            return None
        return self._beat(registration, stream=stream, now=now)

    def has_deleted(self, claim: Claim) -> bool:
        """Return whether an operator deleted topics under this version of the table, so that it may lack some of
        them."""
        return bool(self._deleted(claim))

    def adds_to(self, registration: Registration, claim: Claim) -> bool:
        """Return whether the topics of a claim add to those of a registration that is still held."""
        is_held = self._core.registration_of(claim.identity) is registration
        return is_held and not _is_another_store(claim.data_version, registration.data_version)

    def beat(
        self, key: GroupKey, addr: str, data_version: DataVersion | None, *, stream: int, now: float
    ) -> Accepted | None:
        """Record a heartbeat without topics; None: no broker holds the address. It never restores one that left."""
        replica = self._at(key, addr)
        if replica is None:
            return None
        return self._beat(replica.registration, data_version=data_version, stream=stream, now=now)

    def held_version(self, key: GroupKey, addr: str) -> DataVersion | None:
        """Return the version of the topics of the broker that holds an address."""
        replica = self._at(key, addr)
        return None if replica is None else replica.registration.data_version

    def unregister(self, key: GroupKey, addr: str, broker_id: int, *, stream: int, now: float) -> tuple[Event, ...]:
        """Unregister a broker; an unknown one is accepted too.

        Not on a connection other than the live one that sends its heartbeats: it may be an earlier process of the same
        broker, whose late request would remove the one that runs. Raises NotUnregistered, also for a broker that its
        agent holds, and for another broker id at that address.
        """
        replica = self._at(key, addr)
        if replica is None:
            return ()
        if replica.registration.from_broker is None:
            raise NotUnregistered(replica.identity, "its agent holds the registration, and unregisters it")
        if replica.identity.broker_id != broker_id:
            raise NotUnregistered(replica.identity, f"the request names broker id {broker_id}")
        if replica.pulse.stream not in {None, stream}:
            raise NotUnregistered(replica.identity, "another connection, which is open, sends its heartbeats")
        return self._core.unregister(replica.identity, replica.generation, reason=Reason.SHUTDOWN, now=now).events

    def end_stream(self, identity: BrokerIdentity, *, stream: int, now: float, by_us: bool) -> tuple[Event, ...]:
        """Record the end of a connection for one broker that sent heartbeats on it."""
        replica = self._holder(identity)
        if replica is None or replica.identity != identity:
            return ()
        return self._core.end_stream(identity, replica.generation, stream=stream, now=now, by_us=by_us)

    def add_topic(self, broker_name: str, topic: str, queues: QueueConfig, *, now: float) -> tuple[Event, ...]:
        """Add one topic to the group of that name that has one of RocketMQ's brokers as its master or first slave.

        Raises InvalidRequest, LimitExceeded. Nothing is stored for an unknown name.
        """
        violations = list(topic_violations(topic, queues, path="topic"))
        if violations:
            raise InvalidRequest(violations)
        for key in sorted(key for key in self._core.routes.groups if key.broker_name == broker_name):
            replica = self._core.routes.groups[key].contributor()
            if replica is not None and replica.registration.from_broker is not None:
                was_deleted = self._core.overrides.show(topic, key)
                if replica.registration.topics.get(topic) != queues:
                    return self._change(replica, {topic: queues}, now=now)
                if was_deleted:
                    self._core.routes.refresh(self._core.routes.groups[key], visibly=False)
                return ()
        return ()

    # --- internals --------------------------------------------------------------------------------------------

    def _first(self, claim: Claim, incoming: Incoming, *, stream: int, now: float) -> Accepted:
        if len(incoming.staging.topics) == 1 and not incoming.bad_topics:
            raise FirstOfOneTopic
        held = self._core.held_topics(claim.identity)
        known = self._staged(incoming, self._deleted(claim) | incoming.unmapped, held=held)
        return self._replace(claim, known, static_topics(incoming.mappings, known.topics), stream=stream, now=now)

    @staticmethod
    def _staged(incoming: Incoming, left_out: frozenset[str], *, held: TopicTable) -> StagedTopics:
        topics: TopicTable = incoming.staging.topics
        if incoming.held is held and topics.keys().isdisjoint(left_out):
            return incoming.staging.finish()
        return staged(_without(topics, left_out), held=held)

    @staticmethod
    def _remaps(incoming: Incoming, held: Registration) -> bool:
        before = held.static_topics
        return any(before.get(topic) != mapping for topic, mapping in incoming.mappings.items() if topic in held.topics)

    def _replace(
        self, claim: Claim, topics: StagedTopics, static: StaticTopics, *, stream: int, now: float
    ) -> Accepted:
        """Register all topics."""
        identity = claim.identity
        holder = self._holder(identity)
        held = holder.registration if holder is not None and holder.identity == identity else None
        registration = replace(
            self._registration(claim, held),
            topics=topics.topics,
            static_topics=static,
            data_version=claim.data_version,
        )
        registered = self._core.register(registration, topics=topics, now=now, peer=peer_key(stream))
        accepted = self._core.routes.groups[identity.group_key].replicas[identity.broker_id]
        accepted.pulse.stream = stream
        return Accepted(accepted.registration, registered.view, registered.events)

    def _vouched(self, claim: Claim, holder: Replica, *, now: float) -> Accepted:
        identity = claim.identity
        if holder.identity != identity:
            raise HeldByAgent(identity, holder_addr=holder.identity.addr)
        events = self._core.vouch(identity, now=now)
        view = self._core.routes.groups[identity.group_key].view_for(identity.broker_id)
        return Accepted(holder.registration, view, events)

    def _beat(
        self, registration: Registration, *, stream: int, now: float, data_version: DataVersion | None = None
    ) -> Accepted:
        identity = registration.identity
        group = self._core.routes.groups[identity.group_key]
        replica = group.replicas[identity.broker_id]
        if registration.from_broker is None:
            events = self._core.vouch(identity, now=now)
        else:
            self._core.held.move(replica, peer_key(stream))
            answer = self._core.beat(
                identity,
                replica.generation,
                data_version=data_version or registration.data_version,
                now=now,
                stream=stream,
            )
            assert answer.status in {BeatStatus.OK, BeatStatus.TOPICS_OUT_OF_DATE}
            events = answer.events
        return Accepted(registration, group.view_for(identity.broker_id), events)

    def _change(self, replica: Replica, changed: dict[str, QueueConfig], *, now: float) -> tuple[Event, ...]:
        """Change the topics of a broker that did not announce it: its version stays."""
        held = replica.registration.data_version
        return self._core.update_topics(
            replica.identity,
            replica.generation,
            base=held,
            data_version=held,
            changed=changed,
            removed=(),
            max_topics=self._max_topics,
            now=now,
        ).events

    def _registration(self, claim: Claim, held: Registration | None = None) -> Registration:
        """Return the registration of a claim; what the claim lacks is taken from the one that is held."""
        expiry = EXPIRY if claim.timeout is None else claim.timeout
        interval = INTERVAL if claim.timeout is None else min(FAST_INTERVAL, expiry / MIN_EXPIRY_INTERVALS)
        interval = min(max(interval, self._bounds.min_heartbeat_interval), self._bounds.max_heartbeat_interval)
        expiry = min(max(expiry, MIN_EXPIRY_INTERVALS * interval), self._bounds.max_expiry)
        base = Registration(identity=claim.identity, topics={}) if held is None else held
        return replace(
            base,
            heartbeat_interval=interval,
            expiry=expiry,
            from_broker=FromBroker(claim.acting_master),
            acting_master=True,
            ha_addr="" if addr_problem(claim.ha_addr) else claim.ha_addr,
            zone=claim.zone,
            broker_version=claim.broker_version,
            agent_version="",
            agent_addr="",
            filter_servers=tuple(addr for addr in claim.filter_servers if not addr_problem(addr)),
            data_version=claim.data_version if held is None else held.data_version,
        )

    def _deleted(self, claim: Claim) -> frozenset[str]:
        """Return the topics that an operator deleted and this version of the table does not restore, as in RocketMQ."""
        return self._core.overrides.hidden_under(claim.identity.group_key, claim.data_version)

    def _changed(self, incoming: Incoming, held: TopicTable) -> Mapping[str, QueueConfig]:
        if incoming.held is held:
            return incoming.staging.changed
        return {topic: queues for topic, queues in incoming.staging.topics.items() if held.get(topic) != queues}

    def _registration_of(self, identity: BrokerIdentity) -> Registration:
        registration = self._core.registration_of(identity)
        assert registration is not None, "it was registered a moment ago"
        return registration

    def _holder(self, identity: BrokerIdentity) -> Replica | None:
        group = self._core.routes.groups.get(identity.group_key)
        return None if group is None else group.replicas.get(identity.broker_id)

    def _at(self, key: GroupKey, addr: str) -> Replica | None:
        group: Group | None = self._core.routes.groups.get(key)
        return None if group is None else group.at_addr(addr)


def drop_topic(core: NameServer, topic: str, cluster: str, *, now: float) -> tuple[Event, ...]:
    """Remove a deleted topic from the registrations of RocketMQ brokers, in one cluster if it is named.

    Their registrations only add: a topic that is only hidden would return with the next version of their topics.
    """
    events: list[Event] = []
    for key in sorted(core.routes.groups):
        for replica in list(core.routes.groups[key].replicas.values()) if cluster in {"", key.cluster} else ():
            held = replica.registration
            if held.from_broker is not None and topic in held.topics:
                events += core.update_topics(
                    held.identity,
                    replica.generation,
                    base=held.data_version,
                    data_version=held.data_version,
                    changed={},
                    removed=(topic,),
                    max_topics=len(held.topics),
                    now=now,
                ).events
    return tuple(events)


def peer_key(stream: int) -> str:
    """Return the peer of a connection on this wire, for bounds."""
    return f"remoting {stream}"


def _without(topics: Mapping[str, QueueConfig], deleted: frozenset[str]) -> Mapping[str, QueueConfig]:
    return {topic: queues for topic, queues in topics.items() if topic not in deleted} if deleted else topics


def _is_another_store(claimed: DataVersion, held: DataVersion) -> bool:
    """Return whether a broker returned with other contents: its table starts again, later than the one held.

    A frame that was overtaken by a later one of the same table (4.9 registers from several threads) has an earlier
    time and is accepted like any other; the next period corrects it. A store that was restored from a backup looks the
    same, and a refusal would last. Counters of slaves rise and fall as they copy their master's table.
    """
    return (
        claimed.state_version == held.state_version
        and claimed.counter < held.counter
        and claimed.timestamp_millis >= held.timestamp_millis
    )
