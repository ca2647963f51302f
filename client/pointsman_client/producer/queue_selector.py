"""Which queue a message goes to when its sender does not say. Pure; chance comes from the caller's ``rng``.

RocketMQ's ``TopicPublishInfo`` and ``MQFaultStrategy``: round robin over the flattened list of writable queues, so all
of one broker and then all of the next, past brokers that are isolated and past the one that failed last.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from pointsman_client.message_queue import MessageQueue
from pointsman_client.producer.fault_table import LatencyFaultTolerance
from pointsman_client.route import BrokerKey


@dataclass(frozen=True, slots=True)
class Choice:
    """A queue, and whom it was chosen instead of."""

    queue: MessageQueue
    passed_over: tuple[BrokerKey, ...] = ()
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
            queue = self.next()
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
        queue, passed_over = info.next_of(available - {last_broker})
        if queue is None:
            reachable = {broker for broker in info.brokers if self._faults.is_reachable(broker)}
            queue, passed_over = info.next_of(reachable - {last_broker})
        if queue is None:
            return Choice(info.next())
        return Choice(queue, tuple(broker for broker in passed_over if broker not in available))

    def _select_as_4_9(
        self, info: PublishInfo, faults: LatencyFaultTolerance, available: set[BrokerKey], *, now: float
    ) -> Choice:
        queue, passed_over = info.next_of(available)
        if queue is not None:
            return Choice(queue, passed_over)
        picked = faults.pick_at_least_one(info.brokers, turn=self._turn, now=now)
        self._turn += 1
        queue, passed_over = info.next_of(() if picked is None else (picked,))
        return Choice(queue or info.next(), passed_over)
