"""Queue selection of a producer by the weights that brokers give to their queues of a topic.

Smooth weighted round robin between brokers, as nginx's ``ngx_http_upstream_get_round_robin_peer``: a broker of weight 5
beside one of 1 is chosen as a a a b a a, not in one row of five. A broker's own queues take turns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

from pointsman_client.core.fault_strategy import PublishInfo
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey, TopicRoute


def to_queue_weights(route: TopicRoute) -> Mapping[BrokerKey, int]:
    """Return the weight of each queue by replica group; empty if all are the same."""
    weights = {data.broker_key: data.queue_weight for data in route.queue_datas}
    return weights if len(set(weights.values())) > 1 else {}


def new_publish_info(
    queues: tuple[MessageQueue, ...], weights: Mapping[BrokerKey, int], *, rng: random.Random
) -> PublishInfo:
    """Return the rotation of these queues; a broker without a weight has weight 1."""
    return WeightedPublishInfo(queues, weights, rng=rng) if weights else PublishInfo(queues, rng=rng)


class WeightedPublishInfo(PublishInfo):
    """The writable queues of a topic whose brokers give them different weights.

    A broker's turns are in proportion to the sum of its queues' weights. The turns of brokers that are not wanted are
    divided among the others, in proportion to theirs.
    """

    def __init__(
        self, queues: tuple[MessageQueue, ...], weights: Mapping[BrokerKey, int], *, rng: random.Random
    ) -> None:
        self._queues_of: dict[BrokerKey, list[MessageQueue]] = {}
        for queue in queues:
            self._queues_of.setdefault(queue.broker_key, []).append(queue)
        self._weight_of = {broker: weights.get(broker, 1) * len(own) for broker, own in self._queues_of.items()}
        self._next_of = {broker: rng.randrange(len(own)) for broker, own in self._queues_of.items()}
        super().__init__(queues, rng=rng)
        self.weights = weights
        self._start()

    def start_anywhere(self) -> None:
        """Continue at a random queue."""
        self._start()

    def next(self) -> MessageQueue:
        """Return the next queue of any broker."""
        return self._queue_of(self._turn_of(self._turns, self.brokers))

    def next_of(self, is_wanted: Callable[[BrokerKey], bool]) -> tuple[MessageQueue | None, tuple[BrokerKey, ...]]:
        """Return the next queue of a wanted broker, and the broker skipped before it."""
        wanted = [broker for broker in self.brokers if is_wanted(broker)]
        if not wanted:
            return None, self.brokers
        broker = self._turn_of(self._turns, self.brokers)
        if broker in wanted:
            return self._queue_of(broker), ()
        return self._queue_of(self._turn_of(self._substitutes, wanted)), (broker,)

    def _start(self) -> None:
        self._turns = self._random_turns()
        self._substitutes = self._random_turns()
        """Turns of brokers that take those of others: with one table for both, the first would pay for the second."""

    def _random_turns(self) -> dict[BrokerKey, int]:
        # The first turn is a broker's in proportion to its weight: many producers send few messages.
        turns = dict.fromkeys(self.brokers, 0)
        first = self._rng.choices(self.brokers, [self._weight_of[broker] for broker in self.brokers])[0]
        turns[first] = max(self._weight_of.values())
        return turns

    def _turn_of(self, turns: dict[BrokerKey, int], brokers: Collection[BrokerKey]) -> BrokerKey:
        weight_of = self._weight_of
        total = 0
        for broker in brokers:
            turns[broker] += weight_of[broker]
            total += weight_of[broker]
        chosen = max(brokers, key=turns.__getitem__)
        turns[chosen] -= total
        return chosen

    def _queue_of(self, broker: BrokerKey) -> MessageQueue:
        own, index = self._queues_of[broker], self._next_of[broker]
        self._next_of[broker] = (index + 1) % len(own)
        return own[index]
