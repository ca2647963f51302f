"""Maps from sharding keys to queues in which additional queues move as few keys as possible.

A map is a setting; ``over(queues)`` applies it to one topic's queues. Call that when the queues change, not per
message. Pass all queues of the topic, not only those that are writable now: a key whose broker is down must wait or
fail, not move to another queue (see ``on_unavailable``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, repeat
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from pointsman_client.core.checks import check_number
from pointsman_client.core.message_queue import MessageQueue, to_order_queues, why_without_queue, write_queue_counts
from pointsman_client.core.route import BrokerKey, TopicRoute
from pointsman_client.errors import InvalidOptionError, NoBrokerUpError, NoWritableQueueError

POINTS_PER_QUEUE = 256
"""Measured ratio of the fullest queue to the mean (median of five sets of brokers): 1.09 with 8 queues, 1.10 with 16,
1.20 with 1,024. Half as many points: 1.20, 1.16 and 1.24. Twice as many: 1.05, 1.08 and 1.18, in twice the build time,
which is 2 ms with 16 queues and 0.3 s with 1,024."""

_DIGEST = Struct(">8Q")
_POINTS_PER_DIGEST = 8
_NO_PREFIXES: Mapping[str, MessageQueue] = MappingProxyType({})


class QueueOfKey(Protocol):
    """A map applied to the queues of one topic."""

    def queue_of(self, key: str, *, second: str | None = None) -> MessageQueue:
        """Return the key's queue. ``second`` spreads a key that has sub-shards; others ignore it."""
        ...


class ShardingMap(Protocol):
    """A rule that maps keys to queues. A custom one consists of two classes with one method each.

    A producer keeps each ``second`` value of a key in order by itself, unless the rule has the method
    ``spreads(topic, key)`` and it returns False: ``second`` does not decide the key's queue.
    """

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        """Apply the rule to a topic's queues. Raises :class:`InvalidOptionError` if there are none."""
        ...


@runtime_checkable
class SpreadsKeys(Protocol):
    """A rule that says which keys have sub-shards."""

    def spreads(self, topic: str, key: str) -> bool:
        """Whether ``second`` decides the key's queue in this topic."""
        ...


class OrderKey(NamedTuple):
    """What a producer keeps in order: a key, or one sub-shard of it."""

    key: str
    second: str | None = None
    """None: the key has no sub-shards."""


class HashRing:
    """Consistent hashing: each queue owns the keys before its points on a ring.

    When n queues become m, about (m - n) / m of the keys move, all of them to new queues. In topics with the same
    queues a key maps to the same queue, regardless of their order in the route.
    """

    def __init__(self, *, points_per_queue: int = POINTS_PER_QUEUE) -> None:
        check_number("points_per_queue", points_per_queue)
        self._points_per_queue = points_per_queue

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        """Build the ring."""
        return _Ring(_checked(queues), self._points_per_queue)

    def spreads(self, topic: str, key: str) -> bool:  # noqa: ARG002 - the protocol's
        """No key has sub-shards."""
        return False


class _Ring:
    def __init__(self, queues: Sequence[MessageQueue], points_per_queue: int) -> None:
        owners: dict[int, MessageQueue] = {}
        # The lower of two queues with the same point owns it, regardless of their order.
        for queue in sorted(queues, reverse=True):
            owners.update(zip(_points(queue, points_per_queue), repeat(queue)))
        self._points = array("Q", sorted(owners))
        self._owners = [owners[point] for point in self._points]

    def queue_of(self, key: str, *, second: str | None = None) -> MessageQueue:  # noqa: ARG002 - the protocol's
        place = bisect_left(self._points, _hash(key.encode()))
        return self._owners[place if place < len(self._owners) else 0]


class ModuloMap:
    """RocketMQ's ``SelectMessageQueueByHash``: Java's hash code of the key modulo the number of queues.

    For producers that share a topic with RocketMQ producers. Additional queues move most keys: two thirds when 8 queues
    become 12.
    """

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        """Use the queues in their order, which determines the result."""
        return _Modulo(_checked(queues))

    def spreads(self, topic: str, key: str) -> bool:  # noqa: ARG002 - the protocol's
        """No key has sub-shards."""
        return False


class _Modulo:
    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def queue_of(self, key: str, *, second: str | None = None) -> MessageQueue:  # noqa: ARG002 - the protocol's
        # Java's remainder has the sign of the hash code; RocketMQ uses its absolute value.
        return self._queues[abs(java_hash_code(key)) % len(self._queues)]


class ExplicitTable:
    """Queues by key, then by the longest prefix of the key; another map for all other keys.

    An entry applies only to its queue's topic, also if the queue is not in the route now.
    """

    def __init__(
        self,
        keys: Mapping[str, MessageQueue],
        *,
        prefixes: Mapping[str, MessageQueue] = _NO_PREFIXES,
        fallback: ShardingMap | None = None,
    ) -> None:
        self._keys = dict(keys)
        self._prefixes = dict(prefixes)
        self._fallback = fallback if fallback is not None else HashRing()

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        """Use the entries of the queues' topic."""
        topic = _checked(queues)[0].topic
        return _Table(
            {key: queue for key, queue in self._keys.items() if queue.topic == topic},
            {prefix: queue for prefix, queue in self._prefixes.items() if queue.topic == topic},
            self._fallback.over(queues),
        )

    def spreads(self, topic: str, key: str) -> bool:
        """Whether the other map has sub-shards of a key without an entry."""
        queues = [self._keys.get(key), *(queue for prefix, queue in self._prefixes.items() if key.startswith(prefix))]
        if any(queue is not None and queue.topic == topic for queue in queues):
            return False
        return not isinstance(self._fallback, SpreadsKeys) or self._fallback.spreads(topic, key)


class _Table:
    def __init__(
        self, keys: Mapping[str, MessageQueue], prefixes: Mapping[str, MessageQueue], fallback: QueueOfKey
    ) -> None:
        self._keys = keys
        self._prefixes = prefixes
        self._lengths = sorted({len(prefix) for prefix in prefixes}, reverse=True)
        self._fallback = fallback

    def queue_of(self, key: str, *, second: str | None = None) -> MessageQueue:
        found = self._keys.get(key)
        if found is not None:
            return found
        for length in self._lengths:
            found = self._prefixes.get(key[:length])
            if found is not None:
                return found
        return self._fallback.queue_of(key, second=second)


class SubShards:
    """Distributes given hot keys over several queues; another map is used for all other keys.

    Messages of a hot key are then in order only if they have the same ``second`` value; without one they are sent
    round-robin, without order. Additional queues may move a sub-shard as they move keys.
    """

    def __init__(self, sub_shards: Mapping[str, int], *, others: ShardingMap | None = None) -> None:
        for key, shards in sub_shards.items():
            check_number(f"sub_shards[{key!r}]", shards)
        self._sub_shards = dict(sub_shards)
        self._others = others if others is not None else HashRing()

    def over(self, queues: Sequence[MessageQueue]) -> QueueOfKey:
        """Choose one queue per sub-shard for each hot key, all different; all queues if there are fewer."""
        _checked(queues)
        return _HotKeys(
            {key: _heaviest(queues, key, shards) for key, shards in self._sub_shards.items()}, self._others.over(queues)
        )

    def spreads(self, topic: str, key: str) -> bool:
        """Whether the key is one of the hot keys, or has sub-shards in the other map."""
        if key in self._sub_shards:
            return True
        return not isinstance(self._others, SpreadsKeys) or self._others.spreads(topic, key)


class _HotKeys:
    def __init__(self, queues_of: Mapping[str, Sequence[MessageQueue]], others: QueueOfKey) -> None:
        self._queues_of = queues_of
        self._turns = {key: count() for key in queues_of}
        self._others = others

    def queue_of(self, key: str, *, second: str | None = None) -> MessageQueue:
        queues = self._queues_of.get(key)
        if queues is None:
            return self._others.queue_of(key, second=second)
        if second is None:
            return queues[next(self._turns[key]) % len(queues)]
        return _heaviest(queues, second, 1)[0]


def java_hash_code(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit number."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return code - (code >> 31 << 32)


def _heaviest(queues: Sequence[MessageQueue], text: str, shards: int) -> tuple[MessageQueue, ...]:
    """Return the queues of greatest weight for a text (rendezvous hashing: a new queue replaces at most one)."""

    def weight(queue: MessageQueue) -> int:
        return _hash(f"{text}\0{_place(queue)}".encode())

    return tuple(sorted(queues, key=lambda queue: (-weight(queue), queue))[:shards])


def _points(queue: MessageQueue, wanted: int) -> tuple[int, ...]:
    points: tuple[int, ...] = ()
    for number in range(-(-wanted // _POINTS_PER_DIGEST)):
        points += _DIGEST.unpack(blake2b(f"{_place(queue)}-{number}".encode()).digest())
    return points[:wanted]


def _place(queue: MessageQueue) -> str:
    return f"{queue.cluster}/{queue.broker_name}/{queue.queue_id}"


def _hash(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest())


def _checked(queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
    if not queues:
        raise InvalidOptionError("queues", queues, "must hold at least one queue")
    return queues


class ConfiguredQueues:
    """The queues that the keys of one topic map to: all of them, also those that cannot be written now.

    With only the writable queues, a broker that is down for a minute would move keys to other queues and back, and
    break the order of a key's messages twice. So:

    - With an order-topic configuration these are the configured queues in their order, except those that a broker is
      known not to have. Only this gives every process the same queues, regardless of when it started.
    - Otherwise they are the write queues of every replica group in the route, also without a master or write
      permission, and of groups seen before that are not in the route now. They change when a new group appears, or when
      the number of a group's write queues changes, also to 0.
    - A group that was removed permanently is retained, since it cannot be distinguished from one that is down.
      :meth:`drop_absent` or a restart of the producer removes it.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._numbers: dict[BrokerKey, int] = {}
        self._route: TopicRoute | None = None
        self._queues: tuple[MessageQueue, ...] = ()

    def see(self, route: TopicRoute) -> tuple[MessageQueue, ...]:
        """Record the current route and return the queues; the same object while they do not change.

        A static topic has none. Raises :class:`OrderTopicConfError`.
        """
        if route is self._route:
            return self._queues
        if route.is_static:
            self._numbers.clear()
            queues: tuple[MessageQueue, ...] = ()
        elif route.order_topic_conf:
            self._numbers.update(write_queue_counts(route))
            queues = to_order_queues(route, self._numbers)
        else:
            self._numbers.update(write_queue_counts(route))
            queues = tuple(
                MessageQueue(self._topic, cluster, broker_name, queue_id)
                for (cluster, broker_name), number in sorted(self._numbers.items())
                for queue_id in range(number)
            )
        self._route = route
        if queues != self._queues:
            self._queues = queues
        return self._queues

    def drop_absent(self) -> None:
        """Drop groups that are not in the route; the next route passed to :meth:`see` determines the groups."""
        self._numbers.clear()
        self._route = None


@dataclass(slots=True)
class _TopicMap:
    configured: ConfiguredQueues
    queues: tuple[MessageQueue, ...] = ()
    map: QueueOfKey | None = field(default=None)


class KeyQueues:
    """The maps of one producer, one per topic that it sends to by key."""

    def __init__(self, sharding: ShardingMap, *, zone: str = "") -> None:
        """``zone``: the zone that the client's routes are limited to; empty: none."""
        self._sharding = sharding
        self._zone = zone
        self._topics: dict[str, _TopicMap] = {}

    def order_key(self, topic: str, key: str, second: str | None) -> OrderKey | None:
        """Return what is kept in order with a message; None: nothing, its key is spread without a second value."""
        rule = self._sharding
        spreads = rule.spreads(topic, key) if isinstance(rule, SpreadsKeys) else second is not None
        if not spreads:
            return OrderKey(key)
        return None if second is None else OrderKey(key, second)

    def queue_of(self, route: TopicRoute, key: str, *, second: str | None = None) -> MessageQueue:
        """Return the key's queue for the topic's route; it may not be writable now.

        Raises :class:`NoBrokerUpError` if all brokers are down and were not seen before, :class:`NoWritableQueueError`
        if the topic has no write queues, and :class:`OrderTopicConfError`.
        """
        topic = self._topics.get(route.topic)
        if topic is None:
            topic = self._topics[route.topic] = _TopicMap(ConfiguredQueues(route.topic))
        queues = topic.configured.see(route)
        if not queues:
            if route.absent_brokers:
                raise NoBrokerUpError(route.topic, route.absent_brokers)
            why = why_without_queue(route, zone=self._zone) or "its brokers have no write queues"
            raise NoWritableQueueError(route.topic, why)
        if topic.map is None or queues is not topic.queues:
            topic.queues, topic.map = queues, self._sharding.over(queues)
        return topic.map.queue_of(key, second=second)

    def queue_as_seen(self, topic: str, key: str, *, second: str | None = None) -> MessageQueue | None:
        """Return the key's queue by earlier routes, for a topic without a route; None if there was no route."""
        seen = self._topics.get(topic)
        return None if seen is None or seen.map is None else seen.map.queue_of(key, second=second)

    def drop_absent(self, topic: str) -> None:
        """Drop brokers of the topic that are not in the route: they were removed permanently."""
        if topic in self._topics:
            self._topics[topic].configured.drop_absent()
            self._topics[topic].map = None
