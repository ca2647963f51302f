"""The brokers of one topic as seen by one run of a name server at a moment: each replica's last row, and its topics.

The state of a replica is that of the last row before the moment (``state``, ``planned``, ``since_ms``). Its topics are
those of its TOPICS rows. Overrides follow the name server's rules: a group's topics are those of its master, or
read-only those of its lowest slave if that may act as a master; a wiped write permission lasts until it is restored; a
deleted topic stays hidden until its broker registers another version. Only checkpoints record whether a slave may act
as a master (default: yes). Checkpoints do not name deleted topics, so a deletion before the rows read (those of the
moment's day and the day before) is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from pointsman.history.row_format import NOT_ROUTED
from pointsman.history.topic_history import Group, HistoryRow, Queues

REGISTRATIONS = frozenset({"REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED"})
MASTER_ID = 0
PERM_WRITE = 2
_MAY_RETURN = frozenset({"EXPIRED", "CHECKPOINT"})
"""Events of a replica that is gone and did not unregister."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica in a result, from its last row; ``state`` is GONE if it was not registered."""

    broker_id: int
    addr: str | None
    state: str
    planned: bool
    since: datetime | None
    """None: lost in a restart of the name server."""
    event: str
    reason: str | None
    recorded_at: datetime
    """Time of the last row about it ..."""
    recorded_by: str
    """... and the name server that wrote it."""

    @property
    def is_routed(self) -> bool:
        return self.state not in NOT_ROUTED


@dataclass(frozen=True, slots=True)
class GroupView:
    """A broker name as seen by a name server; ``queues`` is None if it was not in the topic's route."""

    queues: Queues | None
    replicas: tuple[ReplicaView, ...]
    wiped: bool = False
    hidden: bool = False
    is_known: bool = True
    """False: rows are missing that may have changed it."""

    def offered(self) -> tuple[object, ...]:
        """The route entry that clients received."""
        if self.queues is None:
            return (None,)
        return (self.queues, *((one.broker_id, one.addr) for one in self.replicas if one.is_routed))

    def shape(self) -> tuple[object, ...]:
        """The values that distinguish views of different name servers; times are not among them."""
        replicas = ((one.broker_id, one.addr, one.state, one.planned) for one in self.replicas)
        return (self.queues, self.wiped, self.hidden, self.is_known, *replicas)

    def joined(self, other: GroupView) -> GroupView:
        """Merge two views of the same shape: the last row of both, and the earlier ``since``."""
        pairs = zip(self.replicas, other.replicas, strict=True)
        return replace(self, replicas=tuple(_joined(*pair) for pair in pairs))


def _joined(one: ReplicaView, other: ReplicaView) -> ReplicaView:
    known = [view.since for view in (one, other) if view.since is not None]
    return replace(max(one, other, key=_recorded_at), since=min(known, default=None))


def _recorded_at(view: ReplicaView) -> tuple[datetime, str]:
    return view.recorded_at, view.recorded_by


@dataclass(slots=True)
class Replica:
    """One replica, registered or removed."""

    broker_id: int
    last: HistoryRow
    """The last row with its state."""
    addr: str | None = None
    version: str | None = None
    queues: Queues | None = None
    may_act: bool = True


@dataclass(slots=True)
class _Group:
    replicas: dict[int, Replica] = field(default_factory=dict)
    wiped: bool = False
    hidden_under: str | None = None
    is_hidden: bool = False

    def lowest(self) -> Replica | None:
        routed = [replica for replica in self.replicas.values() if replica.last.is_routed]
        return min(routed, key=lambda replica: replica.broker_id, default=None)

    def contributor(self) -> Replica | None:
        lowest = self.lowest()
        return lowest if lowest is not None and (lowest.broker_id == MASTER_ID or lowest.may_act) else None

    def holder(self) -> Replica | None:
        """The replica whose topics the group has: registered, or expired but not unregistered; routed or not."""
        replicas = self.replicas.values()
        held = [each for each in replicas if each.last.state != "GONE" or each.last.event in _MAY_RETURN]
        lowest = min(held, key=lambda replica: replica.broker_id, default=None)
        may_act = lowest is not None and (lowest.broker_id == MASTER_ID or lowest.may_act)
        return self.contributor() or (lowest if may_act else None)

    def accept_topics_of(self, replica: Replica) -> None:
        """End a deletion once the group's topics have another version."""
        if self.contributor() is replica and self.is_hidden and replica.version != self.hidden_under:
            self.is_hidden = False


class Replay:
    """Replays one run's rows in order; only deletions of ``topic`` matter.

    ``before``: the run whose snapshot it loaded. Overrides by operators outlast a restart, and are recorded only once.
    """

    def __init__(self, topic: str, before: Replay | None = None) -> None:
        self.topic = topic
        kept = {} if before is None else before.groups
        self.groups: dict[Group, _Group] = {
            key: _Group(wiped=group.wiped, hidden_under=group.hidden_under, is_hidden=group.is_hidden)
            for key, group in kept.items()
        }

    def play(self, rows: Iterable[HistoryRow]) -> Replay:
        """Replay rows; the rows of one topic set are consecutive."""
        parts: list[HistoryRow] = []
        for row in rows:
            if parts and (row.set is None or row.set.part == 1 or row.seq - row.set.part != _begin(parts[-1])):
                self._apply_set(parts)
                parts = []
            if row.set is not None:
                parts.append(row)
            else:
                self._apply(row)
        if parts:
            self._apply_set(parts)
        return self

    def _apply(self, row: HistoryRow) -> None:
        if not row.broker_name:
            return
        group = self.groups.setdefault(row.group, _Group())
        if row.event == "PERM_CHANGED":
            group.wiped = row.detail.get("writable") is False
        elif row.event == "TOPIC_DELETED":
            holder = group.holder()
            if row.detail.get("topic") == self.topic and holder is not None:
                group.is_hidden, group.hidden_under = True, holder.version
        elif row.broker_id is not None and row.state is not None:
            self._state(group, row, row.broker_id)

    def _state(self, group: _Group, row: HistoryRow, broker_id: int) -> None:
        known = group.replicas.get(broker_id)
        was_failing = known is not None and known.last.state == "OUT"
        if row.event == "REGISTERED":
            # The replica was not registered, so all its topics are recorded again.
            may_act = known is None or known.may_act
            group.replicas[broker_id] = Replica(broker_id, row, may_act=may_act)
        replica = self._replica(group, row, broker_id)
        replica.last = row
        if row.event == "CHECKPOINT" and row.state != "GONE":
            group.wiped = row.detail.get("writable") is False
            brings = row.detail.get("brings_topics")
            if broker_id != MASTER_ID and isinstance(brings, bool) and (brings or group.lowest() is replica):
                replica.may_act = brings
        by_itself = row.event in REGISTRATIONS and row.reason != "SNAPSHOT"
        recovered = was_failing and broker_id == MASTER_ID and row.event in {"REREGISTERED", "RECOVERED"}
        if by_itself or recovered:
            group.accept_topics_of(replica)

    def _replica(self, group: _Group, row: HistoryRow, broker_id: int) -> Replica:
        """Return the replica of a row, created if it was unknown."""
        replica = group.replicas.setdefault(broker_id, Replica(broker_id, row))
        replica.addr, replica.version = row.broker_addr or replica.addr, row.data_version or replica.version
        return replica

    def _apply_set(self, rows: list[HistoryRow]) -> None:
        """Apply a topic set (possibly with missing parts), or a change of one."""
        first = rows[0]
        if first.set is None or not first.broker_name or first.broker_id is None or first.state is None:
            return
        group = self.groups.setdefault(first.group, _Group())
        replica = self._replica(group, first, first.broker_id)
        if replica.last.state != first.state:
            replica.last = first
        named = next((row.set.queues for row in rows if row.set is not None and row.set.queues is not None), None)
        is_removed = any(row.set.removed for row in rows if row.set is not None)
        left_out = first.set.full and len(rows) == first.set.parts
        if named is not None:
            replica.queues = named
        elif is_removed or left_out:
            replica.queues = None
        # A checkpoint repeats known topics; the broker sent nothing.
        if first.reason is None:
            group.accept_topics_of(replica)

    def view(self, key: Group) -> GroupView:
        """Return a broker name as seen by the name server."""
        group = self.groups.get(key)
        if group is None:
            return GroupView(None, ())
        contributor = group.contributor()
        hidden = group.is_hidden and contributor is not None and contributor.version == group.hidden_under
        queues = None if contributor is None or hidden else contributor.queues
        if queues is not None and contributor is not None and (group.wiped or contributor.broker_id != MASTER_ID):
            queues = (queues[0], queues[1], queues[2] & ~PERM_WRITE)
        replicas = tuple(_view(group.replicas[broker_id]) for broker_id in sorted(group.replicas))
        return GroupView(queues, replicas, wiped=group.wiped, hidden=hidden)


def _view(replica: Replica) -> ReplicaView:
    row = replica.last
    since, planned = row.state_since, bool(row.planned)
    return ReplicaView(
        replica.broker_id, replica.addr, row.state or "", planned, since, row.event, row.reason, row.at, row.node
    )


def _begin(row: HistoryRow) -> int:
    return row.seq - (row.set.part if row.set is not None else 0)
