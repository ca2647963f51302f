"""Interfaces of a consumer to the brokers' agents: group members, queue locks, offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import PointsmanError


class GroupMembership(Protocol):
    """Membership of one consumer in its group."""

    async def start(self) -> None:
        """Start joining at every agent of the subscribed topics, without waiting for any."""
        ...

    @property
    def members(self) -> Members | None:
        """The latest list; None until a reliable agent has sent one (do not rebalance)."""
        ...

    async def refresh_members(self) -> None:
        """Query the watched agent for :attr:`members`; takes at most 1 s. They are unchanged if it fails."""
        ...

    def subscriptions_changed(self) -> None:
        """Send the current subscriptions to the agents immediately."""
        ...

    def routes_changed(self) -> None:
        """Check the routes for agents immediately."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Return members and agents, as JSON values."""
        ...

    async def leave(self) -> None:
        """Leave the group, so that the other members rebalance immediately; takes at most 2 s."""
        ...


class QueueLocks(Protocol):
    """Locks of queues at the agents of their brokers. Times are monotonic seconds of the client's clock."""

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock or renew; return the queues that this client has locked. Without a response a queue is not locked."""
        ...

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock, as far as agents respond; takes at most 1 s."""
        ...

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """Return the client id of each lock's holder. Queues without a valid lock or a response are left out."""
        ...


class OffsetStore(Protocol):
    """Storage of a group's offsets, and of when it first consumed each topic."""

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """Return committed offsets."""
        ...

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """Record when the group consumed topics. The earliest time wins and is returned."""
        ...

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """Commit; return the failed queues with their errors. Offsets go backwards only with ``reset``."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """Result of loading offsets."""

    offsets: Mapping[MessageQueue, int]
    """Queues with a committed offset."""
    unknown: Mapping[MessageQueue, PointsmanError]
    """Queues whose query failed: do not start them. A queue in neither has no committed offset."""
    lower: Mapping[MessageQueue, int] = field(default_factory=dict)
    """The master's lower offsets of queues where ``offsets`` has a slave's; used if the master lacks messages."""


@dataclass(frozen=True, slots=True)
class BegunTopics:
    """When a group first consumed topics; each topic is in one of the two fields."""

    moments: Mapping[str, datetime]
    """Topics with the time of first consumption."""
    unknown: Mapping[str, PointsmanError]
    """Topics for which a required query failed: do not start their queues."""
