"""What one life of a name server would have answered about one topic, played from its own rows.

The rules are the server's own: a group's topics are those of its master, or read-only those of its lowest slave if that
may act as one; a wiped write permission holds until it is given back; a deleted topic stays hidden until its broker
brings another version; what a failing probe took out is known and not routed. Rows do not tell everything: a broker
that the guard keeps for its silence still shows as SUSPECT, and whether a slave may act as a master is told by
checkpoints alone (it may, where none says otherwise). A checkpoint does not name deleted topics, so a deletion from
before the rows that are played (those of the asked day and the day before) is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spark_jobs.questions.group_view import DOWN, LEFT, OUT, GroupView, ReplicaView
from spark_jobs.questions.told import Group, Queues, Told

REGISTRATIONS = frozenset({"REGISTERED", "REREGISTERED", "ROLE_CHANGED", "ADDRESS_CHANGED", "RESTARTED"})
LOSSES = frozenset({"EXPIRED", "UNREGISTERED", "PROBE_FAILED"})
MASTER_ID = 0
PERM_WRITE = 2
DEFAULT_EXPIRY = timedelta(seconds=120)
DEFAULT_INTERVAL = timedelta(seconds=30)


@dataclass(slots=True)
class Replica:
    """One replica as the name server held it."""

    broker_id: int
    addr: str | None
    state: str
    since: datetime
    """Since when it is in this state."""
    last: Told
    """The row that last said anything of it."""
    version: str | None = None
    queues: Queues | None = None
    may_act: bool = True
    failing_since: datetime | None = None
    announced: bool = False
    released_at: datetime | None = None
    """When the guard, that had put it back with its probe failing, let go."""
    expiry: timedelta = DEFAULT_EXPIRY
    interval: timedelta = DEFAULT_INTERVAL

    @property
    def is_routed(self) -> bool:
        return self.state != OUT


@dataclass(slots=True)
class _Group:
    replicas: dict[int, Replica] = field(default_factory=dict)
    gone: dict[int, Told] = field(default_factory=dict)
    wiped: bool = False
    hidden_under: str | None = None
    is_hidden: bool = False

    def lowest(self) -> Replica | None:
        routed = [replica for replica in self.replicas.values() if replica.is_routed]
        return min(routed, key=lambda replica: replica.broker_id, default=None)

    def contributor(self) -> Replica | None:
        lowest = self.lowest()
        return lowest if lowest is not None and (lowest.broker_id == MASTER_ID or lowest.may_act) else None

    def take_word_of(self, replica: Replica) -> None:
        """A deletion is over once the group's word on its topics has another version."""
        if self.contributor() is replica and self.is_hidden and replica.version != self.hidden_under:
            self.is_hidden = False


class Replay:
    """Takes one life's rows in their order; of deletions only that of ``topic`` bears on it.

    ``before``: the life whose snapshot it began with, played to its end. What operators had laid over the brokers' own
    word lasts, and rows tell it but once.
    """

    def __init__(self, topic: str, before: Replay | None = None) -> None:
        self.topic = topic
        self.windows: set[Group] = set() if before is None else set(before.windows)
        kept = {} if before is None else before.groups
        self.groups: dict[Group, _Group] = {
            key: _Group(wiped=group.wiped, hidden_under=group.hidden_under, is_hidden=group.is_hidden)
            for key, group in kept.items()
        }

    def play(self, rows: Iterable[Told]) -> Replay:
        """Take rows; those of one topic set stand next to each other."""
        parts: list[Told] = []
        for row in rows:
            if parts and (row.set is None or row.set.part == 1 or row.seq - row.set.part != _begin(parts[-1])):
                self._take_set(parts)
                parts = []
            if row.set is not None:
                parts.append(row)
            else:
                self._take(row)
        if parts:
            self._take_set(parts)
        return self

    def _take(self, row: Told) -> None:
        if row.event in {"GUARD_ON", "GUARD_OFF"}:
            self._guard(row)
        elif row.event == "MAINTENANCE_ON":
            self.windows.add(row.group)
        elif row.event == "MAINTENANCE_OFF":
            self.windows.discard(row.group)
        elif not row.broker_name:
            return
        elif row.event == "PERM_CHANGED":
            self._group(row).wiped = row.detail.get("writable") is False
        elif row.event == "TOPIC_DELETED":
            if row.detail.get("topic") == self.topic:
                self._hide(row)
        elif row.broker_id is None:
            return
        elif row.event in LOSSES:
            self._lose(row, row.broker_id)
        elif row.event in REGISTRATIONS:
            self._register(row, row.broker_id)
        elif row.event == "CHECKPOINT":
            self._check(row, row.broker_id)
        elif row.event in {"SUSPECTED", "RECOVERED", "LATE_HEARTBEAT"}:
            self._sign(row, row.broker_id)

    def _group(self, row: Told) -> _Group:
        return self.groups.setdefault(row.group, _Group())

    def _replica(self, row: Told, broker_id: int, state: str) -> Replica:
        """The replica of a row; one that was not known is known from here on."""
        group = self._group(row)
        replica = group.replicas.get(broker_id)
        if replica is None:
            replica = group.replicas[broker_id] = Replica(broker_id, row.broker_addr, state, row.at, row)
        group.gone.pop(broker_id, None)
        if replica.state != state:
            replica.state, replica.since = state, row.at
        replica.addr, replica.last = row.broker_addr or replica.addr, row
        replica.version = row.data_version or replica.version
        if state != OUT and replica.state != "PROTECTED":
            replica.failing_since = None
        return replica

    def _register(self, row: Told, broker_id: int) -> None:
        group = self._group(row)
        if row.event == "REGISTERED":
            # Nobody held the place, so all its topics are told anew.
            before = group.replicas.pop(broker_id, None)
            may_act = before is None or before.may_act
        else:
            may_act = True
        known = group.replicas.get(broker_id)
        was_out = known is not None and known.failing_since is not None
        # A probe that fails and is told of all the same: the guard keeps it.
        replica = self._replica(row, broker_id, "PROTECTED" if "probe" in row.detail else "UP")
        replica.may_act = replica.may_act and may_act
        if row.reason != "SNAPSHOT" or (was_out and broker_id == MASTER_ID):
            group.take_word_of(replica)

    def _lose(self, row: Told, broker_id: int) -> None:
        group = self._group(row)
        only_out = row.event == OUT or (row.reason == "MAINTENANCE" and row.detail.get("cause") == "PROBE")
        if not only_out:
            group.replicas.pop(broker_id, None)
            group.gone[broker_id] = row
            return
        known = group.replicas.get(broker_id)
        if row.detail.get("registration") == "REGISTERED":
            group.replicas.pop(broker_id, None)
        elif known is not None and known.announced and known.state == "PROTECTED":
            # Only the window is over in which that was announced.
            known.announced = False
            return
        since = known.failing_since if known is not None else None
        replica = self._replica(row, broker_id, OUT)
        replica.failing_since, replica.announced, replica.released_at = since or row.at, row.event != OUT, None

    def _check(self, row: Told, broker_id: int) -> None:
        group = self._group(row)
        replica = self._replica(row, broker_id, str(row.detail.get("state") or "UP"))
        if replica.state == OUT and replica.failing_since is None:
            replica.failing_since = row.at
        group.wiped = row.detail.get("writable") is False
        brings = row.detail.get("brings_topics")
        if broker_id != MASTER_ID and isinstance(brings, bool) and (brings or group.lowest() is replica):
            replica.may_act = brings
        replica.expiry = _span(row.detail.get("expiry_ms"), DEFAULT_EXPIRY)
        replica.interval = _span(row.detail.get("heartbeat_interval_ms"), DEFAULT_INTERVAL)

    def _sign(self, row: Told, broker_id: int) -> None:
        known = self._group(row).replicas.get(broker_id)
        if row.event == "SUSPECTED":
            self._replica(row, broker_id, "PROTECTED" if row.reason == "PROBE" else "SUSPECT")
        elif known is None or known.state != OUT or row.reason == "PROBE":
            # A late beat does not bring back what a failed probe took out: its agent lives, it does not.
            was_out = known is not None and known.failing_since is not None
            replica = self._replica(row, broker_id, "UP")
            if was_out and broker_id == MASTER_ID:
                self._group(row).take_word_of(replica)

    def _hide(self, row: Told) -> None:
        group = self._group(row)
        contributor = group.contributor()
        if contributor is not None:
            group.is_hidden, group.hidden_under = True, contributor.version

    def _guard(self, row: Told) -> None:
        """The guard puts back whoever failed within its window; when it lets go, they leave with the next beat."""
        for key, group in self.groups.items():
            if key[0] != row.cluster:
                continue
            covered = not self.windows.isdisjoint({key, (key[0], "")})
            for replica in group.replicas.values():
                since = replica.failing_since
                if row.event == "GUARD_OFF" and replica.state == "PROTECTED" and since is not None:
                    replica.released_at = row.at
                elif row.event == "GUARD_ON" and row.reason in {"SHARE", "TIME_OVER"} and since is not None:
                    replica.released_at = None
                    if replica.state == OUT and not covered and row.at - since <= replica.expiry:
                        replica.state, replica.since, replica.last = "PROTECTED", row.at, row

    def _take_set(self, rows: list[Told]) -> None:
        """A topic set, whole or in parts of which some were lost, or a change of one."""
        first = rows[0]
        if first.set is None or not first.broker_name or first.broker_id is None:
            return
        group = self._group(first)
        known = group.replicas.get(first.broker_id)
        replica = self._replica(first, first.broker_id, "UP") if known is None else known
        replica.version = first.data_version or replica.version
        named = next((row.set.queues for row in rows if row.set is not None and row.set.queues is not None), None)
        is_gone = any(row.set.removed for row in rows if row.set is not None)
        left_out = first.set.full and len(rows) == first.set.parts
        if named is not None:
            replica.queues = named
        elif is_gone or left_out:
            replica.queues = None
        # A checkpoint tells what is known; it is nobody's new word.
        if first.reason is None:
            group.take_word_of(replica)

    def view(self, key: Group, *, at: datetime) -> GroupView:
        """How the server saw a broker name; ``at`` is the moment of the question."""
        group = self.groups.get(key)
        if group is None:
            return GroupView(None, ())
        for replica in group.replicas.values():
            if replica.released_at is not None and at - replica.released_at > replica.interval:
                replica.state, replica.since, replica.released_at = OUT, replica.released_at, None
        contributor = group.contributor()
        hidden = group.is_hidden and contributor is not None and contributor.version == group.hidden_under
        queues = None if contributor is None or hidden else contributor.queues
        if queues is not None and contributor is not None and (group.wiped or contributor.broker_id != MASTER_ID):
            queues = (queues[0], queues[1], queues[2] & ~PERM_WRITE)
        held = [
            ReplicaView(one.broker_id, one.addr, one.state, one.since, *_by(one.last))
            for one in group.replicas.values()
        ]
        gone = [
            ReplicaView(
                broker_id,
                row.broker_addr,
                LEFT if row.event == "UNREGISTERED" else DOWN,
                row.at,
                *_by(row),
            )
            for broker_id, row in group.gone.items()
        ]
        replicas = tuple(sorted([*held, *gone], key=lambda one: one.broker_id))
        return GroupView(queues, replicas, wiped=group.wiped, hidden=hidden)


def _by(row: Told) -> tuple[str, str | None, datetime, str]:
    return row.event, row.reason, row.at, row.node


def _begin(row: Told) -> int:
    return row.seq - (row.set.part if row.set is not None else 0)


def _span(milliseconds: object, default: timedelta) -> timedelta:
    if isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool):
        return timedelta(milliseconds=milliseconds)
    return default
