"""The queues that a change of an order-topic configuration adds and removes, and the share of keys that move. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pointsman.names import printable
from pointsman.wire.json_document import Document
from pointsman_client import MessageQueue, OrderTopicConfError, TopicRoute, to_publish_queues

MAX_HASHES = 100_000
"""Hash codes that the share of moved keys is counted over."""


@dataclass(frozen=True, slots=True)
class KeyMoves:
    """The queues that keys map to, before and after a change; before: empty if keys have no queue now."""

    before: tuple[MessageQueue, ...]
    after: tuple[MessageQueue, ...]

    @property
    def changed(self) -> int:
        """Number of queues that are added or removed."""
        return len(set(self.before) ^ set(self.after))

    @property
    def all_queues(self) -> int:
        """Number of queues before or after."""
        return len(set(self.before) | set(self.after))

    @property
    def hash_ring(self) -> float:
        """Share of keys that move with ``HashRing``: those whose next point belongs to a queue that changes."""
        return self.changed / self.all_queues if self.before and self.all_queues else 0.0

    @property
    def modulo(self) -> float:
        """Share of keys that move with ``ModuloMap`` and RocketMQ's ``SelectMessageQueueByHash``: positions change."""
        if not self.before:
            return 0.0
        if not self.after:
            return 1.0
        codes = min(math.lcm(len(self.before), len(self.after)), MAX_HASHES)
        moved = sum(self.before[code % len(self.before)] != self.after[code % len(self.after)] for code in range(codes))
        return moved / codes

    @property
    def moves_keys(self) -> bool:
        """Whether a key may move."""
        return bool(self.before) and self.before != self.after

    def document(self) -> Document:
        """Return the facts for the output in JSON."""
        return {
            "queuesBefore": len(self.before),
            "queuesAfter": len(self.after),
            "changedQueues": self.changed,
            "movedKeys": {"hashRing": round(self.hash_ring, 4), "modulo": round(self.modulo, 4)},
            "brokers": [
                {"cluster": cluster, "brokerName": broker_name, "queuesBefore": before, "queuesAfter": after}
                for cluster, broker_name, before, after in self._changed_brokers()
            ],
        }

    def text(self) -> str:
        """Return a sentence for an operator."""
        brokers = ", ".join(
            f"{printable('/'.join(filter(None, (cluster, broker_name))))} {before} -> {after}"
            for cluster, broker_name, before, after in self._changed_brokers()
        )
        what = f"{self.changed} of {self.all_queues} queues change ({brokers})" if brokers else "only the order changes"
        ring, modulo = f"{self.hash_ring:.0%}", f"{self.modulo:.0%}"
        return f"{what}; {ring} of the keys with HashRing, {modulo} with ModuloMap or RocketMQ's hash"

    def _changed_brokers(self) -> Iterator[tuple[str, str, int, int]]:
        before, after = (Counter(queue.broker_key for queue in queues) for queues in (self.before, self.after))
        for key in sorted(before.keys() | after.keys()):
            if before[key] != after[key]:
                yield *key, before[key], after[key]


def key_moves(route: TopicRoute, configuration: str) -> KeyMoves:
    """Compare the route's queues of keys with those of another order-topic configuration; empty: none."""
    return KeyMoves(_queues(route), _queues(replace(route, order_topic_conf=configuration)))


def largest(moves: Sequence[KeyMoves]) -> KeyMoves | None:
    """Return the one of several name servers that moves most; None: none moves a key."""
    moving = [each for each in moves if each.moves_keys]
    return max(moving, key=lambda each: (each.hash_ring, each.modulo)) if moving else None


def _queues(route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that ``send_by_key`` maps keys to, also those that cannot be written now."""
    if route.order_topic_conf:
        try:
            return to_publish_queues(route)
        except OrderTopicConfError:
            return ()  # clients raise it for each message
    return tuple(
        sorted(
            MessageQueue(route.topic, data.cluster, data.broker_name, queue_id)
            for data in route.queue_datas
            for queue_id in range(data.write_queue_nums)
        )
    )
