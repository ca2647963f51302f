"""What the history is told of a broker: events made from a replica as it is at that moment."""

from __future__ import annotations

from namesrv.core.events import Event, EventKind, Reason, TopicsPayload
from namesrv.core.group import Group, Replica
from namesrv.core.model import DataVersion, GroupKey, TopicTable
from namesrv.core.staging import StagedTopics

OWNER = "owner"
"""The label that says who answers for a broker: the history tells it, so that a report can say whom to ask."""


def broker_event(
    kind: EventKind,
    replica: Replica,
    reason: Reason | None = None,
    *,
    now: float,
    detail: dict[str, object] | None = None,
) -> Event:
    """An event of a replica, with the time since its last sign of life."""
    interval = now - replica.pulse.last_seen
    return Event(kind=kind, reason=reason, broker=replica.facts(), interval=interval, detail=detail or {})


def registration_event(replica: Replica, *, holder: Replica | None, vacated: Replica | None, now: float) -> Event:
    """Name what a registration was to the history; one event, whatever changed at once."""
    incarnation = replica.registration.incarnation
    detail: dict[str, object] = {"topics": len(replica.registration.topics), **_owner(replica)}
    if holder is not None and holder.identity.addr != replica.identity.addr:
        detail["previous_addr"] = holder.identity.addr
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
    return Event(kind=kind, broker=replica.facts(), interval=interval, detail=detail)


def topics_event(replica: Replica, staged: StagedTopics, *, holder: Replica | None) -> Event | None:
    """Tell a topic set: what differs from the holder's, or all of it; None where the holder had the same."""
    payload: TopicsPayload | None
    if holder is None or holder.registration.topics is not staged.compared_with:
        payload = TopicsPayload(replica.registration.topics)
    elif staged.is_unchanged:
        return None
    else:
        payload = TopicsPayload(staged.changed, staged.removed, base=holder.registration.data_version)
    return Event(kind=EventKind.TOPICS, broker=replica.facts(), topics=payload)


def delta_event(replica: Replica, changed: TopicTable, removed: tuple[str, ...], *, base: DataVersion) -> Event:
    """Tell a change of some topics."""
    return Event(kind=EventKind.TOPICS, broker=replica.facts(), topics=TopicsPayload(changed, removed, base=base))


def checkpoint_events(
    group: Group, replica: Replica, reason: Reason, *, writable: bool, now: float
) -> tuple[Event, ...]:
    """Everything of one replica, so that what follows can be read without what was before."""
    registration = replica.registration
    detail: dict[str, object] = {
        "state": replica.state.value,
        "brings_topics": group.contributor() is replica,
        "writable": writable,
        "topics": len(registration.topics),
        "ha_addr": registration.ha_addr,
        "agent_addr": registration.agent_addr,
        "heartbeat_interval_ms": round(registration.heartbeat_interval * 1000),
        "expiry_ms": round(registration.expiry * 1000),
        **_owner(replica),
    }
    checkpoint = broker_event(EventKind.CHECKPOINT, replica, reason, now=now, detail=detail)
    topics = Event(
        kind=EventKind.TOPICS, reason=reason, broker=replica.facts(), topics=TopicsPayload(registration.topics)
    )
    return checkpoint, topics


def _owner(replica: Replica) -> dict[str, object]:
    owner = replica.registration.labels.get(OWNER)
    return {OWNER: owner} if owner else {}


def write_perm_event(key: GroupKey, reason: Reason, *, writable: bool, detail: dict[str, object]) -> Event:
    """Tell that the write permission of a group was wiped or given back."""
    return Event(kind=EventKind.PERM_CHANGED, reason=reason, group=key, detail={"writable": writable} | detail)
