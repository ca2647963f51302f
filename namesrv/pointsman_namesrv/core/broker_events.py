"""Events of a broker, built from the current state of a replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pointsman_namesrv.core.departed import DepartedBroker
from pointsman_namesrv.core.events import Event, EventKind, TopicsPayload
from pointsman_namesrv.core.group import Group, Replica
from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, GroupKey, Reason, TopicTable
from pointsman_namesrv.core.replica_state import Phase, ReplicaState
from pointsman_namesrv.core.staging import StagedTopics

SOURCE = "remoting"
"""Source in the history of a registration over RocketMQ's own wire."""
OWNER = "owner"
"""Label with the team that is responsible for a broker. The history contains it, so that a report can name the team."""


OUTLIVED_WINDOW = "outlived_window"
"""Detail of an event: the maintenance window ended in which the broker left the routes. From now on it is an outage."""

_KINDS = {
    Phase.OUT: EventKind.PROBE_FAILED,
    Phase.PROTECTED: EventKind.PROTECTED,
    Phase.SUSPECT: EventKind.SUSPECTED,
    Phase.UP: EventKind.RECOVERED,
}


def broker_event(
    kind: EventKind,
    replica: Replica,
    reason: Reason | None = None,
    *,
    now: float,
    interval: float | None = None,
    detail: Mapping[str, object] | None = None,
) -> Event:
    """Build an event of a replica; ``interval``: seconds since its last heartbeat, by default those until ``now``."""
    return Event(
        kind=kind,
        reason=reason,
        broker=replica.facts(now=now),
        interval=now - replica.pulse.last_seen if interval is None else interval,
        detail={**(detail or {}), **_probe(replica)},
    )


def transition_event(
    replica: Replica, *, now: float, interval: float | None = None, detail: Mapping[str, object] | None = None
) -> Event:
    """Build the event of the state that a replica has just entered."""
    phase, reason, _ = replica.state
    is_expired = reason in {Reason.SILENCE, Reason.STREAM_BROKEN}
    kind = _KINDS.get(phase) or (EventKind.EXPIRED if is_expired else EventKind.UNREGISTERED)
    if reason is Reason.SILENCE and replica.pulse.is_silent_on_open_stream:
        detail = {**(detail or {}), ("stream" if replica.registration.from_broker is None else "connection"): "open"}
    return broker_event(kind, replica, reason, now=now, interval=interval, detail=detail)


def outlived_event(broker: DepartedBroker, *, now: float) -> Event:
    """Build the event of a lost broker whose maintenance window has ended."""
    detail = {OUTLIVED_WINDOW: True, "absent_seconds": round(now - broker.at, 3)}
    return Event(kind=EventKind.EXPIRED, reason=broker.reason, broker=broker.facts(now=now), detail=detail)


def evicted_event(broker: DepartedBroker, *, detail: Mapping[str, object]) -> Event:
    """Build the last event of a lost broker, which an operator retired."""
    facts = broker.facts(now=broker.at)
    state = ReplicaState(Phase.GONE, Reason.ADMIN, planned=True)
    return Event(
        kind=EventKind.UNREGISTERED,
        reason=Reason.ADMIN,
        broker=replace(facts, state=state, state_for=0.0),
        detail=detail,
    )


def absence_event(broker: DepartedBroker, reason: Reason, *, number: int, of: int, now: float) -> Event:
    """Build the row of a lost broker in a checkpoint: row ``number`` of ``of``."""
    assert broker.reason is not None, "a broker that was heard is lost for a reason"
    detail: dict[str, object] = {"i": number, "n": of, "gone_reason": broker.reason.value}
    return Event(kind=EventKind.CHECKPOINT, reason=reason, broker=broker.facts(now=now), detail=detail)


def heartbeats_event(replica: Replica, *, now: float) -> tuple[Event, ...]:
    """Build the row of a replica's heartbeats; none if there was no heartbeat."""
    if not replica.punctuality.count:
        return ()
    detail = replica.punctuality.detail(now=now)
    return (Event(kind=EventKind.HEARTBEATS, broker=replica.facts(now=now), detail=detail),)


def registration_event(
    replica: Replica,
    *,
    holder: Replica | None,
    vacated: Replica | None,
    earlier: Sequence[Replica] = (),
    now: float,
) -> Event:
    """Build the one event of a registration, however much it changed; ``earlier``: those of other groups that it
    ended."""
    incarnation = replica.registration.incarnation
    detail: dict[str, object] = {
        "topics": len(replica.registration.topics),
        **_owner(replica),
        **_probe(replica),
        **_source(replica),
    }
    if holder is not None and holder.identity.addr != replica.identity.addr:
        detail["previous_addr"] = holder.identity.addr
    if earlier:
        detail["supersedes"] = [str(old.identity.position) for old in earlier]
    has_restarted = bool(holder and incarnation and holder.registration.incarnation not in {"", incarnation})
    if vacated is not None:
        kind = EventKind.ROLE_CHANGED
        detail["previous_broker_id"] = vacated.identity.broker_id
    elif holder is None:
        kind = EventKind.REGISTERED
    elif holder.identity.addr != replica.identity.addr:
        kind = EventKind.ADDRESS_CHANGED
    elif has_restarted and holder.is_routed:
        kind = EventKind.RESTARTED
    else:
        kind = EventKind.REREGISTERED
    before = holder or vacated
    interval = None if before is None else now - before.pulse.last_seen
    return Event(
        kind=kind, reason=replica.state.reason, broker=replica.facts(now=now), interval=interval, detail=detail
    )


def address_conflict_event(replica: Replica, others: Iterable[BrokerIdentity], *, now: float) -> Event:
    """Build the event of a registration that shares its address from now on."""
    also = [str(other.position) for other in others]
    return broker_event(EventKind.ADDRESS_CONFLICT, replica, now=now, detail={"also_at_addr": also})


def topics_event(replica: Replica, staged: StagedTopics, *, holder: Replica | None, now: float) -> Event | None:
    """Build the event of a topic set: the difference to the holder's, or all of it. None if the holder had the same."""
    payload: TopicsPayload | None
    if holder is None or holder.registration.topics is not staged.compared_with:
        payload = TopicsPayload(replica.registration.topics)
    elif staged.is_unchanged:
        return None
    else:
        payload = TopicsPayload(staged.changed, staged.removed, base=holder.registration.data_version)
    return Event(kind=EventKind.TOPICS, broker=replica.facts(now=now), topics=payload)


def delta_event(
    replica: Replica, changed: TopicTable, removed: tuple[str, ...], *, base: DataVersion, now: float
) -> Event:
    """Build the event of a change of some topics."""
    payload = TopicsPayload(changed, removed, base=base)
    return Event(kind=EventKind.TOPICS, broker=replica.facts(now=now), topics=payload)


def checkpoint_event(replica: Replica, reason: Reason, *, number: int, of: int, now: float) -> Event:
    """Build the row of a replica's state in a checkpoint: row ``number`` of ``of``."""
    return broker_event(EventKind.CHECKPOINT, replica, reason, now=now, detail={"i": number, "n": of})


def full_checkpoint_events(
    group: Group, replica: Replica, reason: Reason, *, number: int, of: int, writable: bool, now: float
) -> tuple[Event, ...]:
    """Build all rows of one replica, so that later rows can be read without earlier ones."""
    registration = replica.registration
    state = checkpoint_event(replica, reason, number=number, of=of, now=now)
    detail: dict[str, object] = {
        **state.detail,
        "brings_topics": group.contributor() is replica,
        "writable": writable,
        "topics": len(registration.topics),
        "ha_addr": registration.ha_addr,
        "agent_addr": registration.agent_addr,
        "heartbeat_interval_ms": round(registration.heartbeat_interval * 1000),
        "expiry_ms": round(registration.expiry * 1000),
        **_owner(replica),
        **_source(replica),
    }
    topics = Event(kind=EventKind.TOPICS, reason=reason, broker=state.broker, topics=TopicsPayload(registration.topics))
    return replace(state, detail=detail), topics


def _probe(replica: Replica) -> dict[str, object]:
    health = replica.health
    return {"probe": health.detail, "evidence": health.failing.value} if health.failing is not None else {}


def _owner(replica: Replica) -> dict[str, object]:
    owner = replica.registration.labels.get(OWNER)
    return {OWNER: owner} if owner else {}


def _source(replica: Replica) -> dict[str, object]:
    return {} if replica.registration.from_broker is None else {"source": SOURCE}


def write_perm_event(key: GroupKey, reason: Reason, *, writable: bool, detail: dict[str, object]) -> Event:
    """Build the event of a write permission that was wiped or restored."""
    return Event(kind=EventKind.PERM_CHANGED, reason=reason, group=key, detail={"writable": writable} | detail)
