"""Pins of single queues: which member of a group is assigned which queue, and until when.

A pin names a queue of any broker, since each agent serves the complete membership of its groups. It is a value in the
membership, and the members apply it: all of one revision apply the same pins to the same list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from pointsman.client_id import address_of
from pointsman_agent.core.group_rules import GroupLimitReached

MAX_QUEUE_PINS = 64
"""Of one group: a pin is for a few hot queues; a membership with its pins is sent to every member."""
MAX_QUEUE_PINS_OF_ALL = 4_096
"""Of all groups at one agent."""


class PinnedQueue(NamedTuple):
    """A queue of any broker."""

    topic: str
    cluster: str
    broker_name: str
    queue_id: int

    def is_of(self, other: PinnedQueue) -> bool:
        """Whether it is the other one, which has a cluster; empty here: of any cluster."""
        return self._replace(cluster=self.cluster or other.cluster) == other


class QueuePin(NamedTuple):
    """A pin of one queue."""

    queue: PinnedQueue
    target: str
    """A client id, or an address that stands for the first client at it."""
    until: float
    """Monotonic seconds at which it ends."""

    def owner(self, client_ids: Sequence[str]) -> str:
        """Return the one of these sorted clients that is assigned the queue; empty: none."""
        if self.target in client_ids:
            return self.target
        return next((each for each in client_ids if address_of(each) == self.target), "")


class QueuePinRefused(Exception):
    """A queue of this group cannot be pinned; the text has the reason. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class QueuePins:
    """The pins of all groups at one moment. Changes return another value, so that it can be stored before it holds."""

    by_group: Mapping[str, tuple[QueuePin, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Sorted by queue, each queue once; a group without pins is absent."""

    def of(self, group: str) -> tuple[QueuePin, ...]:
        """Return the pins of a group, sorted by queue."""
        return self.by_group.get(group, ())

    def with_pin(self, group: str, pin: QueuePin) -> QueuePins:
        """Return these with one more, which replaces that of the same queue. Raises GroupLimitReached."""
        others = [each for each in self.of(group) if each.queue != pin.queue]
        if len(others) >= MAX_QUEUE_PINS:
            raise GroupLimitReached("pinned queues of one group", MAX_QUEUE_PINS)
        if len(others) == len(self.of(group)) and sum(map(len, self.by_group.values())) >= MAX_QUEUE_PINS_OF_ALL:
            raise GroupLimitReached("pinned queues", MAX_QUEUE_PINS_OF_ALL)
        return self._with(group, sorted([*others, pin]))

    def without(self, group: str, queue: PinnedQueue | None = None) -> QueuePins:
        """Return these without the pin of a queue (with an empty cluster, of any), or without all of a group."""
        if queue is None:
            return self._with(group, [])
        return self._with(group, [each for each in self.of(group) if not queue.is_of(each.queue)])

    def lasting(self, now: float) -> QueuePins:
        """Return these without those that have ended; itself if none has."""
        if self.next_end() > now:
            return self
        left = {group: tuple(each for each in pins if each.until > now) for group, pins in self.by_group.items()}
        return QueuePins({group: pins for group, pins in left.items() if pins})

    def next_end(self) -> float:
        """Return when the first of them ends; infinity without any."""
        return min((each.until for pins in self.by_group.values() for each in pins), default=float("inf"))

    def changed(self, other: QueuePins) -> frozenset[str]:
        """Return the groups whose pins differ from others."""
        groups = self.by_group.keys() | other.by_group.keys()
        return frozenset(group for group in groups if self.of(group) != other.of(group))

    def _with(self, group: str, pins: Sequence[QueuePin]) -> QueuePins:
        others = {name: each for name, each in self.by_group.items() if name != group}
        return QueuePins({**others, group: tuple(pins)} if pins else others)
