"""Queue selection of a producer, and isolation of brokers that were slow or failed (RocketMQ ``MQFaultStrategy``)."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRules:
    """How long a broker is isolated after a send. There are presets for two generations of RocketMQ."""

    latency_max_seconds: tuple[float, ...]
    """Latency thresholds, ascending. A send that took at least the i-th one isolates its broker for ..."""
    not_available_seconds: tuple[float, ...]
    """... the i-th of these durations; a shorter send does not isolate it."""
    isolation_latency_seconds: float
    """Latency that a failed send counts as."""
    later_success_clears: bool
    """Whether a later send replaces a running isolation; else it can only extend it."""
    picks_from_better_half: bool
    """True: while no broker is available, one of the better half is chosen; the broker of the last attempt is not
    avoided. False: a reachable one is chosen, and the broker of the last attempt is avoided in any case."""

    def not_available_for(self, latency_seconds: float) -> float:
        """Return the seconds of isolation after a send of this latency."""
        position = bisect_right(self.latency_max_seconds, latency_seconds)
        return self.not_available_seconds[position - 1] if position else 0.0


NEWER_FAULT_RULES = FaultRules(
    latency_max_seconds=(0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
    not_available_seconds=(0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
    isolation_latency_seconds=10.0,
    later_success_clears=False,
    picks_from_better_half=False,
)
"""RocketMQ 5.1 and later."""

OLDER_FAULT_RULES = FaultRules(
    latency_max_seconds=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
    not_available_seconds=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    isolation_latency_seconds=30.0,
    later_success_clears=True,
    picks_from_better_half=True,
)
"""RocketMQ 4.9 and 5.0.0."""


@dataclass(slots=True)
class _FaultItem:
    topic: str
    latency_seconds: float
    available_at: float
    reachable: bool
    probe_at: float


@dataclass(frozen=True, slots=True)
class Isolation:
    """Entry of the fault table for one broker."""

    cluster: str
    broker_name: str
    is_available: bool
    is_reachable: bool
    seconds_left: float
    """Seconds until it is available; 0: it is."""
    latency_seconds: float
    """Latency of the last send."""


class NewIsolation(NamedTuple):
    """What a send did to its broker."""

    seconds: float
    was_available: bool
    """False: it was isolated already."""


class LatencyFaultTolerance:
    """The fault table of one producer. A broker without an entry is available and reachable."""

    def __init__(self, rules: FaultRules = NEWER_FAULT_RULES) -> None:
        self.rules = rules
        self._items: dict[BrokerKey, _FaultItem] = {}
        self._all_available_at = -inf
        """Not before the end of any isolation."""

    def update(
        self, broker: BrokerKey, *, topic: str, latency_seconds: float, isolation: bool, reachable: bool, now: float
    ) -> NewIsolation | None:
        """Record the result of a send; return the isolation that it causes, None if it changes nothing."""
        counted = self.rules.isolation_latency_seconds if isolation else latency_seconds
        seconds = self.rules.not_available_for(counted)
        item = self._items.get(broker)
        if item is None:
            item = self._items[broker] = _FaultItem(topic, latency_seconds, now, reachable, now)
        item.topic, item.latency_seconds, item.reachable = topic, latency_seconds, reachable
        available_at, was = now + seconds, item.available_at
        if not self.rules.later_success_clears and (seconds <= 0 or available_at <= was):
            return None
        item.available_at = available_at
        if seconds <= 0:
            return None
        self._all_available_at = max(self._all_available_at, available_at)
        return NewIsolation(seconds, was_available=now >= was)

    def are_all_available(self, *, now: float) -> bool:
        """Whether no broker can be isolated; False: one was, and may be."""
        return now >= self._all_available_at

    def is_available(self, broker: BrokerKey, *, now: float) -> bool:
        """Whether the broker is not isolated. It may be unreachable all the same."""
        item = self._items.get(broker)
        return item is None or now >= item.available_at

    def is_reachable(self, broker: BrokerKey) -> bool:
        """Whether the last send, or a probe since then, reached it."""
        item = self._items.get(broker)
        return item is None or item.reachable

    def pick_at_least_one(self, brokers: Collection[BrokerKey], *, turn: int, now: float) -> BrokerKey | None:
        """Return one of the better half of these brokers, the ``turn``-th in rotation; None if there are none.

        Better: available, then lower latency, then available earlier (RocketMQ 4.9 ``FaultItem.compareTo``, but among
        the brokers of the topic instead of all).
        """
        if not brokers:
            return None

        def goodness(broker: BrokerKey) -> tuple[bool, float, float, BrokerKey]:
            item = self._items.get(broker)
            if item is None:
                return (False, 0.0, 0.0, broker)
            return (now < item.available_at, item.latency_seconds, item.available_at, broker)

        better = sorted(brokers, key=goodness)[: max(1, len(brokers) // 2)]
        return better[turn % len(better)]

    def due_probes(self, *, now: float, interval_seconds: float) -> tuple[tuple[BrokerKey, str], ...]:
        """Return the unreachable brokers not probed for an interval, each with a topic that was sent there.

        They count as probed after this call.
        """
        due = {broker: item for broker, item in self._items.items() if not item.reachable and now >= item.probe_at}
        for item in due.values():
            item.probe_at = now + interval_seconds
        return tuple((broker, item.topic) for broker, item in due.items())

    def mark_reachable(self, broker: BrokerKey) -> None:
        """Record a successful probe. Its isolation continues: a probe does not show whether sends succeed."""
        item = self._items.get(broker)
        if item is not None:
            item.reachable = True

    def retain(self, is_routed: Callable[[BrokerKey], bool]) -> None:
        """Drop brokers that are in no route."""
        for broker in [broker for broker in self._items if not is_routed(broker)]:
            del self._items[broker]

    def describe(self, *, now: float) -> tuple[Isolation, ...]:
        """Return all entries, sorted."""
        return tuple(
            Isolation(
                cluster,
                broker_name,
                is_available=now >= item.available_at,
                is_reachable=item.reachable,
                seconds_left=max(0.0, item.available_at - now),
                latency_seconds=item.latency_seconds,
            )
            for (cluster, broker_name), item in sorted(self._items.items())
        )


Choice = tuple[MessageQueue, tuple[BrokerKey, ...]]
"""The selected queue, and the isolated brokers whose turn it was."""


class PublishInfo:
    """The writable queues of a topic, at least one, and a position in their rotation.

    The initial position is random, to balance producers.
    """

    def __init__(self, queues: tuple[MessageQueue, ...], *, rng: random.Random) -> None:
        self.queues = queues
        self.weights: Mapping[BrokerKey, int] = {}
        """Of each queue of a replica group; empty: all are the same."""
        self.brokers = tuple(dict.fromkeys(queue.broker_key for queue in queues))
        self._rng = rng
        self._index = rng.randrange(len(queues))

    def start_anywhere(self) -> None:
        """Continue at a random queue."""
        self._index = self._rng.randrange(len(self.queues))

    def next(self) -> MessageQueue:
        """Return the next queue of any broker."""
        queue = self.queues[self._index]
        self._index = (self._index + 1) % len(self.queues)
        return queue

    def next_of(self, is_wanted: Callable[[BrokerKey], bool]) -> tuple[MessageQueue | None, tuple[BrokerKey, ...]]:
        """Return the next queue of a wanted broker, and the brokers skipped before it."""
        skipped: dict[BrokerKey, None] = {}
        for _ in self.queues:
            queue = self.next()
            broker = queue.broker_key
            if is_wanted(broker):
                return queue, tuple(skipped)
            skipped[broker] = None
        return None, tuple(skipped)


class QueueSelector:
    """Selects queues for one producer. ``faults`` is None if fault tolerance is off."""

    def __init__(self, faults: LatencyFaultTolerance | None) -> None:
        self._faults = faults
        self._turn = 0

    def select(self, info: PublishInfo, *, last_broker: BrokerKey | None, now: float) -> Choice:
        """Select a queue; ``last_broker`` failed in the previous attempt, None: this is the first one.

        There is always a result, also when all brokers are isolated.
        """
        faults = self._faults
        if faults is None:
            queue, _ = info.next_of(lambda broker: broker != last_broker)
            return queue or info.next(), ()
        avoids_last = last_broker is not None and not faults.rules.picks_from_better_half
        if faults.are_all_available(now=now) and not avoids_last:
            return info.next(), ()
        is_available = partial(faults.is_available, now=now)
        if faults.rules.picks_from_better_half:
            return self._select_as_4_9(info, faults, is_available, now=now)
        if last_broker is None:
            queue, skipped = info.next_of(is_available)
        else:
            info.start_anywhere()
            queue, skipped = info.next_of(lambda broker: broker != last_broker and is_available(broker))
        if queue is None:
            queue, skipped = info.next_of(lambda broker: broker != last_broker and faults.is_reachable(broker))
        if queue is None:
            return info.next(), ()
        return queue, tuple([broker for broker in skipped if not is_available(broker)])

    def _select_as_4_9(
        self,
        info: PublishInfo,
        faults: LatencyFaultTolerance,
        is_available: Callable[[BrokerKey], bool],
        *,
        now: float,
    ) -> Choice:
        queue, skipped = info.next_of(is_available)
        if queue is not None:
            return queue, skipped
        picked = faults.pick_at_least_one(info.brokers, turn=self._turn, now=now)
        self._turn += 1
        queue, skipped = info.next_of(lambda broker: broker == picked)
        return queue or info.next(), skipped
