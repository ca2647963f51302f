"""What operators change: each change in one call, with the events that say who asked.

A change that changes nothing makes no event. A call that raises has changed nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from namesrv.core.broker_events import write_perm_event
from namesrv.core.errors import ClusterNotFound, InvalidRequest, TopicHeld
from namesrv.core.events import Event, EventKind, Reason
from namesrv.core.guard import GuardMode, GuardStatus
from namesrv.core.kv import ORDER_TOPIC_NAMESPACE, entry_violations
from namesrv.core.model import BrokerIdentity, GroupKey
from namesrv.core.name_server import NameServer
from namesrv.core.order_topics import order_violations
from namesrv.core.validation import MOST_VIOLATION_BYTES
from pointsman.wire.violation import bounded

Events = tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class PermChange:
    """What became of a write permission."""

    topic_count: int
    """Topics of the group."""
    changed: bool
    events: Events


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """What became of a topic."""

    hidden_on: tuple[GroupKey, ...]
    events: Events


@dataclass(frozen=True, slots=True)
class Change:
    """What became of anything else."""

    changed: bool
    events: Events


@dataclass(frozen=True, slots=True)
class GuardChange:
    """What became of a guard."""

    guard: GuardStatus
    events: Events


@dataclass(frozen=True, slots=True)
class Eviction:
    """Who was removed."""

    identity: BrokerIdentity
    events: Events


class Administration:
    """Changes of one name server. ``by`` is whoever asks, as they say themselves."""

    def __init__(self, core: NameServer) -> None:
        self._core = core

    def set_write_perm(self, key: GroupKey, *, writable: bool, by: str) -> PermChange:
        """Wipe the write permission of a broker name, or give it back. Raises BrokerUnknown."""
        changed = self._core.set_writable(key, writable)
        group = self._core.routes.groups.get(key)
        contributor = None if group is None else group.contributor()
        topic_count = 0 if contributor is None else len(contributor.registration.topics)
        detail: dict[str, object] = {"topics": topic_count, "by": by}
        told = write_perm_event(key, Reason.ADMIN, writable=writable, detail=detail)
        return PermChange(topic_count, changed, (told,) if changed else ())

    def delete_topic(self, topic: str, *, cluster: str, force: bool, by: str) -> TopicDeletion:
        """Hide a topic, with an event for each broker name that has it.

        Raises TopicNotFound where no broker has it, TopicHeld where one has and it is not forced.

        A topic lives on brokers: whoever deletes it there first has nothing left to delete here.
        """
        if not force:
            raise TopicHeld(topic, self._core.holders(topic, cluster))
        hidden_on = tuple(self._core.hide_topic(topic, cluster))
        detail: dict[str, object] = {"topic": topic, "forced": force, "by": by}
        told = tuple(
            Event(kind=EventKind.TOPIC_DELETED, reason=Reason.ADMIN, group=key, detail=detail) for key in hidden_on
        )
        return TopicDeletion(hidden_on, told)

    def put_kv(self, namespace: str, key: str, value: str, *, by: str) -> Change:
        """Set one key of the KV configuration. Raises InvalidRequest, LimitExceeded.

        An order configuration with more queues than a registered broker has of the topic is an InvalidRequest.
        """
        if namespace == ORDER_TOPIC_NAMESPACE and not any(entry_violations(namespace, key, value)):
            beyond = list(order_violations(self._core.routes, key, value))
            if beyond:
                raise InvalidRequest(bounded(beyond, most_bytes=MOST_VIOLATION_BYTES))
        if not self._core.kv.put(namespace, key, value):
            return Change(False, ())
        if namespace == ORDER_TOPIC_NAMESPACE:
            self._core.routes.set_order_topic(key, value)
        detail: dict[str, object] = {"namespace": namespace, "key": key, "value": value, "by": by}
        return Change(True, (Event(kind=EventKind.KV_CHANGED, reason=Reason.ADMIN, detail=detail),))

    def delete_kv(self, namespace: str, key: str, *, by: str) -> Change:
        """Remove one key; its event has no value. Raises KvNotFound."""
        self._core.kv.delete(namespace, key)
        if namespace == ORDER_TOPIC_NAMESPACE:
            self._core.routes.set_order_topic(key, "")
        detail: dict[str, object] = {"namespace": namespace, "key": key, "by": by}
        return Change(True, (Event(kind=EventKind.KV_CHANGED, reason=Reason.ADMIN, detail=detail),))

    def set_guard(self, cluster: str, mode: GuardMode, *, seconds: float | None, by: str, now: float) -> GuardChange:
        """Tell the guard of a cluster what to do, for a time or until told otherwise. Raises ClusterNotFound.

        The event is GUARD_ON where the guard keeps brokers after the change, else GUARD_OFF.
        """
        guard = self._core.guard
        known = cluster in guard.clusters() or any(key.cluster == cluster for key in self._core.routes.groups)
        if not known:
            raise ClusterNotFound(cluster)
        before = guard.status(cluster)
        until = None if seconds is None else now + seconds
        turned = guard.set_mode(cluster, mode, until=until, now=now)
        after = guard.status(cluster)
        asked: dict[str, object] = {"mode": mode.value, "by": by}
        if seconds is not None:
            asked["seconds"] = seconds
        if turned:
            events = tuple(replace(event, detail={**event.detail, **asked}) for event in turned)
        elif (before.mode, before.mode_until) != (after.mode, after.mode_until):
            kind = EventKind.GUARD_ON if after.active else EventKind.GUARD_OFF
            events = (Event(kind=kind, reason=Reason.ADMIN, group=GroupKey(cluster, ""), detail=asked),)
        else:
            events = ()
        return GuardChange(after, events)

    def set_maintenance(self, key: GroupKey, *, seconds: float | None, note: str, by: str, now: float) -> Change:
        """Announce an absence of a broker name or (empty name) a cluster; None ends it. Raises LimitExceeded."""
        windows = self._core.maintenance
        if seconds is None:
            if not windows.close(key):
                return Change(False, ())
            return Change(True, (_maintenance(EventKind.MAINTENANCE_OFF, key, {"note": note, "by": by}),))
        windows.open(key, until=now + seconds, note=note, by=by)
        detail: dict[str, object] = {"seconds": seconds, "note": note, "by": by}
        return Change(True, (_maintenance(EventKind.MAINTENANCE_ON, key, detail),))

    def evict(self, cluster: str, broker_name: str, broker_id: int, *, by: str, now: float) -> Eviction:
        """Remove one registration at once. Raises BrokerUnknown."""
        return Eviction(*self._core.evict(cluster, broker_name, broker_id, now=now, detail={"by": by}))


def _maintenance(kind: EventKind, key: GroupKey, detail: dict[str, object]) -> Event:
    return Event(kind=kind, reason=Reason.ADMIN, group=key, detail=detail)
