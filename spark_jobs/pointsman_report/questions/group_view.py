"""How a name server saw one broker name at a moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from pointsman_report.questions.told import NOT_ROUTED, Queues


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica in an answer, as the last row about it says; ``state`` is GONE for one that was not registered."""

    broker_id: int
    addr: str | None
    state: str
    planned: bool
    since: datetime | None
    """None: a restart of the name server forgot it."""
    event: str
    reason: str | None
    told_at: datetime
    """When the row was written that last said anything of it ..."""
    told_by: str
    """... and by which name server."""

    @property
    def is_routed(self) -> bool:
        return self.state not in NOT_ROUTED


@dataclass(frozen=True, slots=True)
class GroupView:
    """A broker name as the server saw it; ``queues`` is None where it was not in the topic's route."""

    queues: Queues | None
    replicas: tuple[ReplicaView, ...]
    wiped: bool = False
    hidden: bool = False

    def offered(self) -> tuple[object, ...]:
        """What a client saw of it."""
        if self.queues is None:
            return (None,)
        return (self.queues, *((one.broker_id, one.addr) for one in self.replicas if one.is_routed))

    def shape(self) -> tuple[object, ...]:
        """What makes it another view than that of the next name server: not when each of them heard of it."""
        replicas = ((one.broker_id, one.addr, one.state, one.planned) for one in self.replicas)
        return (self.queues, self.wiped, self.hidden, *replicas)

    def joined(self, other: GroupView) -> GroupView:
        """One view of two of the same shape: who wrote last speaks, and what was seen first counts."""
        pairs = zip(self.replicas, other.replicas, strict=True)
        return replace(self, replicas=tuple(_joined(*pair) for pair in pairs))


def _joined(one: ReplicaView, other: ReplicaView) -> ReplicaView:
    known = [view.since for view in (one, other) if view.since is not None]
    return replace(max(one, other, key=_told_at), since=min(known, default=None))


def _told_at(view: ReplicaView) -> tuple[datetime, str]:
    return view.told_at, view.told_by
