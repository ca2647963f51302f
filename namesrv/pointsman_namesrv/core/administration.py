"""Changes by operators: each is one call and returns events that name the operator.

A change without an effect emits no event. A call that raises has changed nothing. Each change that must survive a
restart has a ``check_`` method. It raises what the change would raise now, and returns the settings that would follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pointsman import address_list
from pointsman.wire.refusals import FieldViolation, InvalidRequest, refuse_if_any, shown
from pointsman_namesrv.core.additive import drop_topic
from pointsman_namesrv.core.broker_events import write_perm_event
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.guard import GuardMode, GuardStatus
from pointsman_namesrv.core.kv import ORDER_TOPIC_NAMESPACE
from pointsman_namesrv.core.model import BrokerIdentity, GroupKey, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import ClusterNotFound, TopicHeld
from pointsman_namesrv.core.order_topics import order_violations
from pointsman_namesrv.core.saved_settings import (
    MAX_HIDDEN_TOPICS,
    MAX_WIPES,
    Rows,
    Setting,
    SettingKey,
    SettingKind,
    guard_key,
    hidden_key,
    hidden_setting,
    maintenance_key,
    refuse_beyond,
    wipe_key,
)

MAX_RECORDED_CHARACTERS = 1_024
"""Longest value of a key that the history has; of a longer one it has length and digest."""

Events = tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class PermChange:
    """Result of a change of write permission."""

    topic_count: int
    """Topics of the group."""
    changed: bool
    events: Events


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """Result of a deletion of a topic."""

    hidden_on: tuple[GroupKey, ...]
    events: Events


@dataclass(frozen=True, slots=True)
class Change:
    """Result of any other change."""

    changed: bool
    events: Events


@dataclass(frozen=True, slots=True)
class BrokerDataChange:
    """A change of what brokers hold, which an operator is about to make there."""

    what: str
    cluster: str
    broker_names: tuple[str, ...]
    topic: str
    group: str
    undo: str
    values: Mapping[str, object]
    """``before`` and ``after``, as far as they are known."""

    def event(self, *, by: str) -> Event:
        """Return the event; it is about the broker name where only one is concerned."""
        names = tuple(sorted(set(self.broker_names)))
        key = GroupKey(self.cluster, names[0] if len(names) == 1 else "") if self.cluster else None
        given = {"brokers": list(names), "topic": self.topic, "group": self.group, "undo": self.undo}
        detail = {"what": self.what, **{name: each for name, each in given.items() if each}, **self.values, "by": by}
        return Event(kind=EventKind.BROKER_DATA_CHANGED, reason=Reason.ADMIN, group=key, detail=detail)


@dataclass(frozen=True, slots=True)
class GuardChange:
    """Result of a change of a guard."""

    guard: GuardStatus
    events: Events


@dataclass(frozen=True, slots=True)
class Eviction:
    """The broker that was removed."""

    identity: BrokerIdentity
    events: Events


class Administration:
    """Changes of one name server. ``by`` is the operator's name as the request states it.

    Events have the previous value as ``before``. ``hidden_namespaces``: of their keys events have no value, only its
    length and digest. ``followed_list``: the setting that the list of name servers follows, which operators cannot
    change then.
    """

    def __init__(self, core: NameServer, *, hidden_namespaces: Collection[str] = (), followed_list: str = "") -> None:
        self._core = core
        self._hidden_namespaces = frozenset(hidden_namespaces)
        self._followed_list = followed_list

    def check_write_perm(self, key: GroupKey, *, writable: bool) -> Rows:
        """See :meth:`set_write_perm`."""
        incarnation, wipes = self._core.routes.check_writable(key, writable), self._core.overrides.wipes
        if incarnation is None:
            return {wipe_key(key): None}
        refuse_beyond("wiped_broker_names", MAX_WIPES, held=len(wipes), added=key not in wipes)
        return {wipe_key(key): Setting((incarnation,))}

    def set_write_perm(self, key: GroupKey, *, writable: bool, by: str) -> PermChange:
        """Wipe the write permission of a broker name, or restore it. Raises BrokerUnknown, LimitExceeded."""
        self.check_write_perm(key, writable=writable)
        changed = self._core.routes.set_writable(key, writable)
        group = self._core.routes.groups.get(key)
        contributor = None if group is None else group.contributor()
        topic_count = 0 if contributor is None else len(contributor.registration.topics)
        detail: dict[str, object] = {"topics": topic_count, "before": not writable, "by": by}
        event = write_perm_event(key, Reason.ADMIN, writable=writable, detail=detail)
        return PermChange(topic_count, changed, (event,) if changed else ())

    def check_delete_topic(self, topic: str, *, cluster: str, force: bool) -> Rows:
        """See :meth:`delete_topic`."""
        versions, tombstones = self._core.routes.versions_holding(topic, cluster), self._core.overrides.tombstones
        if not force:
            raise TopicHeld(topic, list(versions))
        held = sum(map(len, tombstones.values()))
        added = sum(topic not in tombstones.get(key, ()) for key in versions)
        refuse_beyond("hidden_topics", MAX_HIDDEN_TOPICS, held=held, added=added)
        return {hidden_key(key, topic): hidden_setting(version) for key, version in versions.items()}

    def delete_topic(self, topic: str, *, cluster: str, force: bool, by: str, now: float) -> TopicDeletion:
        """Hide a topic, with an event for each broker name that has it. RocketMQ brokers' registrations lose it.

        Raises TopicNotFound where no broker has it, TopicHeld where one has and it is not forced, LimitExceeded.

        Topics belong to brokers: after a deletion on all brokers there is nothing left to delete here.
        """
        self.check_delete_topic(topic, cluster=cluster, force=force)
        hidden_on = tuple(self._core.routes.hide_topic(topic, cluster))
        detail: dict[str, object] = {"topic": topic, "forced": force, "by": by}
        deletions = tuple(
            Event(kind=EventKind.TOPIC_DELETED, reason=Reason.ADMIN, group=key, detail=detail) for key in hidden_on
        )
        return TopicDeletion(hidden_on, (*drop_topic(self._core, topic, cluster, now=now), *deletions))

    def check_put_kv(self, namespace: str, key: str, value: str) -> Rows:
        """See :meth:`put_kv`."""
        self._refuse_followed(namespace, key)
        self._core.kv.check_put(namespace, key, value)
        if namespace == ORDER_TOPIC_NAMESPACE:
            refuse_if_any(order_violations(self._core.routes, key, value))
        return {SettingKey(SettingKind.KV, (namespace, key)): Setting((value,))}

    def put_kv(self, namespace: str, key: str, value: str, *, by: str, is_followed: bool = False) -> Change:
        """Set one key of the KV configuration. Raises InvalidRequest, LimitExceeded.

        An order configuration with more queues than a registered broker has of the topic is an InvalidRequest, and a
        list of name servers that follows a setting. ``is_followed``: the value is read from there, so no command can
        undo the change.
        """
        self.check_put_kv(namespace, key, value)
        before = self._core.kv.get(namespace, key)
        if not self._core.kv.put(namespace, key, value):
            return Change(False, ())
        if namespace == ORDER_TOPIC_NAMESPACE:
            self._core.routes.set_order_topic(key, value)
        detail: dict[str, object] = {
            "namespace": namespace,
            "key": key,
            "value": self._recorded(namespace, value),
            "before": self._recorded(namespace, before),
            "by": by,
            **({"followed": True} if is_followed else {}),
        }
        return Change(True, (Event(kind=EventKind.KV_CHANGED, reason=Reason.ADMIN, detail=detail),))

    def check_delete_kv(self, namespace: str, key: str) -> Rows:
        """See :meth:`delete_kv`."""
        self._refuse_followed(namespace, key)
        self._core.kv.check_delete(namespace, key)
        return {SettingKey(SettingKind.KV, (namespace, key)): None}

    def delete_kv(self, namespace: str, key: str, *, by: str) -> Change:
        """Remove one key; its event has no value. Raises KvNotFound, and InvalidRequest as :meth:`put_kv`."""
        self._refuse_followed(namespace, key)
        before = self._core.kv.get(namespace, key)
        self._core.kv.delete(namespace, key)
        if namespace == ORDER_TOPIC_NAMESPACE:
            self._core.routes.set_order_topic(key, "")
        recorded = self._recorded(namespace, before)
        detail: dict[str, object] = {"namespace": namespace, "key": key, "before": recorded, "by": by}
        return Change(True, (Event(kind=EventKind.KV_CHANGED, reason=Reason.ADMIN, detail=detail),))

    def _refuse_followed(self, namespace: str, key: str) -> None:
        if self._followed_list and (namespace, key) == (address_list.NAMESPACE, address_list.key_of("")):
            rule = f"follows {self._followed_list} of this name server: change the list there, not {shown(key)}"
            raise InvalidRequest([FieldViolation("key", rule)])

    def _recorded(self, namespace: str, value: str | None) -> object:
        """Return a value of a key as events have it; None: it was not set."""
        if value is None or (len(value) <= MAX_RECORDED_CHARACTERS and namespace not in self._hidden_namespaces):
            return value
        return {"length": len(value), "sha256": hashlib.sha256(value.encode()).hexdigest()}

    def check_guard(self, cluster: str, mode: GuardMode, *, until: float | None) -> Rows:
        """See :meth:`set_guard`."""
        guard = self._core.guard
        known = cluster in guard.clusters() or any(key.cluster == cluster for key in self._core.routes.groups)
        if not known:
            raise ClusterNotFound(cluster)
        guard.check_mode(cluster, mode)
        return {guard_key(cluster): None if mode is GuardMode.AUTO else Setting((mode.value,), until)}

    def set_guard(
        self, cluster: str, mode: GuardMode, *, seconds: float | None, by: str, now: float, since: float | None = None
    ) -> GuardChange:
        """Set what the guard of a cluster does, for ``seconds`` from ``since`` (default ``now``), or until changed.

        The event is GUARD_ON where the guard keeps brokers after the change, else GUARD_OFF. Raises ClusterNotFound,
        LimitExceeded.
        """
        guard = self._core.guard
        until = end_of(seconds, since=now if since is None else since)
        self.check_guard(cluster, mode, until=until)
        before = guard.status(cluster)
        turned = guard.set_mode(cluster, mode, until=until, now=now)
        after = guard.status(cluster)
        held: dict[str, object] = {"mode": before.mode.value}
        if before.mode_until is not None:
            held["seconds"] = round(max(0.0, before.mode_until - now), 3)
        asked: dict[str, object] = {"mode": mode.value, "before": held, "by": by}
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

    def check_maintenance(self, key: GroupKey, *, until: float | None, note: str, by: str) -> Rows:
        """See :meth:`set_maintenance`."""
        if until is None:
            return {maintenance_key(key): None}
        self._core.maintenance.check_open(key)
        return {maintenance_key(key): Setting((note, by), until)}

    def set_maintenance(self, key: GroupKey, *, seconds: float | None, note: str, by: str, now: float) -> Change:
        """Announce an absence of a broker name or (empty name) a cluster from ``now`` on; None ends it.

        Raises LimitExceeded.
        """
        windows = self._core.maintenance
        window = windows.window(key)
        before = None
        if window is not None:
            before = {"seconds": round(max(0.0, window.until - now), 3), "note": window.note, "by": window.by}
        if seconds is None:
            if not windows.close(key):
                return Change(False, ())
            ended: dict[str, object] = {"note": note, "before": before, "by": by}
            return Change(True, (_maintenance(EventKind.MAINTENANCE_OFF, key, ended),))
        windows.open(key, until=now + seconds, note=note, by=by)
        detail: dict[str, object] = {"seconds": seconds, "note": note, "before": before, "by": by}
        return Change(True, (_maintenance(EventKind.MAINTENANCE_ON, key, detail),))

    def evict(self, cluster: str, broker_name: str, broker_id: int, *, by: str, now: float) -> Eviction:
        """Remove one registration immediately. Raises BrokerUnknown."""
        return Eviction(*self._core.evict(cluster, broker_name, broker_id, now=now, detail={"by": by}))


def end_of(seconds: float | None, *, since: float) -> float | None:
    """Return the end of something that lasts ``seconds``; None: it has no end."""
    return None if seconds is None else since + seconds


def _maintenance(kind: EventKind, key: GroupKey, detail: dict[str, object]) -> Event:
    return Event(kind=kind, reason=Reason.ADMIN, group=key, detail=detail)
