"""What a consumer needs of the agents beside the brokers: who else is in its group, locks of queues, offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.rebalance import Members
from pointsman_client.errors import PointsmanError


class GroupMembership(Protocol):
    """One consumer's place in its group."""

    async def start(self) -> None:
        """Join at every agent of the subscribed topics; waits for none of them."""
        ...

    @property
    def members(self) -> Members | None:
        """The latest list; None while no agent has given one that can be relied on (do not rebalance)."""
        ...

    async def refresh_members(self) -> None:
        """Query the agent that is relied on for :attr:`members`; takes at most a second, and keeps them if it fails."""
        ...

    def subscriptions_changed(self) -> None:
        """Say at once what the group reads now."""
        ...

    def routes_changed(self) -> None:
        """Look at once which agents there are."""
        ...

    def describe(self) -> Mapping[str, object]:
        """What is known, as JSON values."""
        ...

    async def leave(self) -> None:
        """Leave politely, so that the others share the queues out at once; takes at most two seconds."""
        ...


class QueueLocks(Protocol):
    """Locks of queues at the agents of their brokers. Times are monotonic seconds of the client's clock."""

    async def lock(self, queues: Collection[MessageQueue]) -> frozenset[MessageQueue]:
        """Lock or renew; return those that are this client's now. A queue whose agent does not answer is not."""
        ...

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock, as far as the agents answer; takes at most a second."""
        ...

    async def holders(self, queues: Collection[MessageQueue]) -> Mapping[MessageQueue, str]:
        """Client id of whoever holds each; a queue without a lock that lives, or whose agent is away, is absent."""
        ...


class OffsetStore(Protocol):
    """Where a group's offsets are kept, and when it first consumed each topic."""

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """Ask for committed offsets."""
        ...

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """Record when the group consumed topics: the earliest moment wins, and is returned."""
        ...

    async def commit(
        self, offsets: Mapping[MessageQueue, int], *, reset: bool = False
    ) -> Mapping[MessageQueue, PointsmanError]:
        """Commit; return the queues that failed, with their cause. Goes backwards only with ``reset``."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedOffsets:
    """What a store knows."""

    offsets: Mapping[MessageQueue, int]
    """Queues with a committed offset."""
    unknown: Mapping[MessageQueue, PointsmanError]
    """Queues that could not be asked about: do not begin them. A queue in neither has no committed offset."""
    lower: Mapping[MessageQueue, int] = field(default_factory=dict)
    """What the master's agent has of queues whose offset is a slave's: to go back to where the master ends before."""


@dataclass(frozen=True, slots=True)
class BegunTopics:
    """When a group first consumed topics; each topic is in one of the two."""

    moments: Mapping[str, datetime]
    """Topics with their first moment."""
    unknown: Mapping[str, PointsmanError]
    """Topics for which not every agent that may know was asked: do not begin their queues."""
