"""Which queue a producer sends to, and which brokers it leaves out for a while (RocketMQ ``MQFaultStrategy``)."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRules:
    """How long a broker is left out after a send. Two generations of RocketMQ are presets."""

    latency_max_seconds: tuple[float, ...]
    """Rising. A send that took at least the i-th of these leaves its broker out for ..."""
    not_available_seconds: tuple[float, ...]
    """... the i-th of these; a shorter one, not at all."""
    isolation_latency_seconds: float
    """What a failed send counts as."""
    later_success_clears: bool
    """Whether a later send decides anew, however long the broker still had; else a pause only grows."""
    picks_from_better_half: bool
    """Whether, with no broker available, one of the better half is chosen, and the broker of the last try is not
    avoided otherwise; else the reachable ones are tried, and the broker of the last try is avoided."""

    def not_available_for(self, latency_seconds: float) -> float:
        """Seconds that a broker is left out after a send of this latency."""
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
    """What the table holds of one broker."""

    cluster: str
    broker_name: str
    is_available: bool
    is_reachable: bool
    seconds_left: float
    """Until it is available; 0 if it is."""
    latency_seconds: float
    """Of the last send."""


class LatencyFaultTolerance:
    """The fault items of one producer. A broker without one is available and reachable."""

    def __init__(self, rules: FaultRules = NEWER_FAULT_RULES) -> None:
        self.rules = rules
        self._items: dict[BrokerKey, _FaultItem] = {}

    def update(
        self, broker: BrokerKey, *, topic: str, latency_seconds: float, isolation: bool, reachable: bool, now: float
    ) -> float:
        """Note how a send to a topic ended; return for how long that leaves the broker out, 0 if it changes nothing."""
        counted = self.rules.isolation_latency_seconds if isolation else latency_seconds
        seconds = self.rules.not_available_for(counted)
        item = self._items.get(broker)
        if item is None:
            item = self._items[broker] = _FaultItem(topic, latency_seconds, now, reachable, now)
        item.topic, item.latency_seconds, item.reachable = topic, latency_seconds, reachable
        available_at = now + seconds
        if self.rules.later_success_clears:
            item.available_at = available_at
            return seconds
        if seconds <= 0 or available_at <= item.available_at:
            return 0.0
        item.available_at = available_at
        return seconds

    def is_available(self, broker: BrokerKey, *, now: float) -> bool:
        """Whether its time out is over. It says nothing of whether it can be reached."""
        item = self._items.get(broker)
        return item is None or now >= item.available_at

    def is_reachable(self, broker: BrokerKey) -> bool:
        """Whether the last send, or a probe since then, found it."""
        item = self._items.get(broker)
        return item is None or item.reachable

    def pick_at_least_one(self, brokers: Collection[BrokerKey], *, turn: int, now: float) -> BrokerKey | None:
        """Take one of the better half of these, the ``turn``-th; None without any.

        Better: available, then with less latency, then available earlier (RocketMQ 4.9 ``FaultItem.compareTo``, over
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
        """The unreachable brokers that were not probed for an interval, each with a topic that was sent there.

        They count as probed now.
        """
        due = {broker: item for broker, item in self._items.items() if not item.reachable and now >= item.probe_at}
        for item in due.values():
            item.probe_at = now + interval_seconds
        return tuple((broker, item.topic) for broker, item in due.items())

    def mark_reachable(self, broker: BrokerKey) -> None:
        """Note that a probe found it. Its time out goes on: an answer to a probe says nothing of how sends fare."""
        item = self._items.get(broker)
        if item is not None:
            item.reachable = True

    def retain(self, is_routed: Callable[[BrokerKey], bool]) -> None:
        """Drop the brokers that are in no route."""
        for broker in [broker for broker in self._items if not is_routed(broker)]:
            del self._items[broker]

    def describe(self, *, now: float) -> tuple[Isolation, ...]:
        """Everything that is held, sorted."""
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A queue, and whom it was chosen instead of."""

    queue: MessageQueue
    skipped: tuple[BrokerKey, ...] = ()
    """Brokers whose turn it was, and who are isolated."""


class PublishInfo:
    """The writable queues of a topic, never none, and whose turn it is; begins anywhere, so that producers spread."""

    def __init__(self, queues: tuple[MessageQueue, ...], *, rng: random.Random) -> None:
        self.queues = queues
        self.brokers = tuple(dict.fromkeys(queue.broker_key for queue in queues))
        self._rng = rng
        self._index = rng.randrange(len(queues))

    def start_anywhere(self) -> None:
        """Go on at a random queue."""
        self._index = self._rng.randrange(len(self.queues))

    def next(self) -> MessageQueue:
        """The next queue, whatever its broker."""
        queue = self.queues[self._index]
        self._index = (self._index + 1) % len(self.queues)
        return queue

    def next_of(self, brokers: Collection[BrokerKey]) -> tuple[MessageQueue | None, tuple[BrokerKey, ...]]:
        """The next queue of one of these brokers, and the other brokers whose turn came before."""
        if not brokers:
            return None, ()
        others: dict[BrokerKey, None] = {}
        for _ in self.queues:
            queue = self.queues[self._index]
            self._index = (self._index + 1) % len(self.queues)
            if queue.broker_key in brokers:
                return queue, tuple(others)
            others[queue.broker_key] = None
        return None, tuple(others)


class QueueSelector:
    """Chooses for one producer. ``faults`` is None while fault tolerance is off."""

    def __init__(self, faults: LatencyFaultTolerance | None) -> None:
        self._faults = faults
        self._turn = 0

    def select(self, info: PublishInfo, *, last_broker: BrokerKey | None, now: float) -> Choice:
        """Choose a queue; ``last_broker`` failed in the try before this one, None in the first try.

        A queue is always found: that all brokers look bad is no reason not to try.
        """
        if self._faults is None:
            others = {broker for broker in info.brokers if broker != last_broker}
            queue, _ = info.next_of(others)
            return Choice(queue or info.next())
        available = {broker for broker in info.brokers if self._faults.is_available(broker, now=now)}
        if self._faults.rules.picks_from_better_half:
            return self._select_as_4_9(info, self._faults, available, now=now)
        if last_broker is not None:
            info.start_anywhere()
        queue, skipped = info.next_of(available - {last_broker})
        if queue is None:
            reachable = {broker for broker in info.brokers if self._faults.is_reachable(broker)}
            queue, skipped = info.next_of(reachable - {last_broker})
        if queue is None:
            return Choice(info.next())
        return Choice(queue, tuple(broker for broker in skipped if broker not in available))

    def _select_as_4_9(
        self, info: PublishInfo, faults: LatencyFaultTolerance, available: set[BrokerKey], *, now: float
    ) -> Choice:
        queue, skipped = info.next_of(available)
        if queue is not None:
            return Choice(queue, skipped)
        picked = faults.pick_at_least_one(info.brokers, turn=self._turn, now=now)
        self._turn += 1
        queue, skipped = info.next_of(() if picked is None else (picked,))
        return Choice(queue or info.next(), skipped)
