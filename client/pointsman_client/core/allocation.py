"""Strategies that allocate a topic's queues to the members of a group: RocketMQ's, and the protocol for your own."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from pointsman import client_id as client_ids
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import AllocationError, InvalidOptionError

Zones = Mapping[BrokerKey, str]
"""Zone of each replica group, from the route; without an entry: unknown."""


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """The queues of one topic and the members that share them, as known to one member."""

    group: str
    client_id: str
    """The member whose share is computed."""
    queues: tuple[MessageQueue, ...]
    """Sorted."""
    client_ids: tuple[str, ...]
    """Sorted; all ASCII, so that Python's order is Java's."""
    zones: Zones = field(default_factory=lambda: MappingProxyType({}))


class AllocationStrategy(Protocol):
    """Computes a member's share.

    Every member computes its own, so for requests that differ only in ``client_id`` the shares must not overlap.
    """

    @property
    def name(self) -> str:
        """For logs and ``describe``."""
        ...

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share. Pure. Raises :class:`AllocationError`."""
        ...


def is_member(request: AllocationRequest) -> bool:
    """Whether the requesting client is one of the members; if not, its share is empty.

    Every strategy except a configured list checks this first. Raises :class:`AllocationError` with RocketMQ's messages,
    in RocketMQ's order.
    """
    if not request.client_id:
        raise AllocationError("currentCID is empty")
    if not request.queues:
        raise AllocationError("mqAll is null or mqAll empty")
    if not request.client_ids:
        raise AllocationError("cidAll is null or cidAll empty")
    return request.client_id in request.client_ids


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as RocketMQ's ``MessageQueue.toString``; consistent hashing hashes this, and errors show it.

    Without a cluster, since RocketMQ's queues have none.
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


VIRTUAL_NODES = 10
"""RocketMQ's default."""


class ConsistentHash:
    """RocketMQ's ``AllocateMessageQueueConsistentHash``, with identical points.

    Shares are uneven, and more so with fewer virtual nodes; with 0 no member gets a queue. All members must use the
    same number.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise AllocationError(f"illegal virtualNodeCnt :{virtual_nodes}")
        self.virtual_nodes = virtual_nodes

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        points, owners = _ring(request.client_ids, self.virtual_nodes)
        if not points:
            return ()
        return tuple(
            queue
            for queue in request.queues
            if owners[bisect_left(points, _hash(queue_text(queue))) % len(points)] == request.client_id
        )


@lru_cache(maxsize=4)
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the sorted points and their owners. Cached for the group's next topic, since hashing is the main cost."""
    ring = {_hash(f"{client_id}-{number}"): client_id for client_id in client_ids for number in range(virtual_nodes)}
    points = tuple(sorted(ring))
    return points, tuple(ring[point] for point in points)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])


class Averagely:
    """Consecutive queues (RocketMQ ``AllocateMessageQueueAveragely``): most queues of a member are on one broker."""

    name = "AVG"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share; the first members get one queue of the remainder each."""
        if not is_member(request):
            return ()
        at = request.client_ids.index(request.client_id)
        size, surplus = divmod(len(request.queues), len(request.client_ids))
        start = at * size + min(at, surplus)
        return request.queues[start : start + size + (at < surplus)]


class AveragelyByCircle:
    """Every n-th queue (RocketMQ ``AllocateMessageQueueAveragelyByCircle``): each broker's queues are distributed."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        return request.queues[request.client_ids.index(request.client_id) :: len(request.client_ids)]


class ByConfig:
    """The configured queues, unchecked (RocketMQ ``AllocateMessageQueueByConfig``).

    The configuration must assign each queue to exactly one member. Queues of the retry topic need no configuration:
    consumers always allocate them averagely.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue] = ()) -> None:
        self._queues = tuple(queues)

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:  # noqa: ARG002 - the protocol's
        """Return the configured queues, including those of other topics."""
        return self._queues


class MachineRoomResolver(Protocol):
    """RocketMQ's ``MachineRoomResolver``. Every member must get the same results; empty: unknown."""

    def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:
        """Return the room of a queue's broker."""
        ...

    def consumer_deploy_in(self, client_id: str) -> str:
        """Return the room of a client."""
        ...


class RoomByNameOrZone:
    """The default: ``room`` of the broker name ``room@broker``, else the broker's zone; the zone in a client's id."""

    def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:
        """Return the room of a queue's broker."""
        return room_in_name(queue.broker_name) or zone_of(queue, zones)

    def consumer_deploy_in(self, client_id: str) -> str:
        """Return the room of a client ``address@instance@zone``."""
        return client_ids.zone_of(client_id)


def room_in_name(broker_name: str) -> str:
    """Return the room of ``room@broker``; empty if the name does not have exactly these two parts."""
    # Java's String.split drops empty parts at the end.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else ""


def zone_of(queue: MessageQueue, zones: Zones) -> str:
    """Return the zone of a queue's broker; empty: unknown."""
    return zones.get(queue.broker_key, "")


class MachineRoom:
    """Only the queues in given rooms (RocketMQ ``AllocateMessageQueueByMachineRoom``).

    All members must have the same rooms. A queue's room is ``room`` in the broker name ``room@broker``, as in RocketMQ,
    or else the zone of its broker in the route.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        if isinstance(rooms, str) or not isinstance(rooms, Collection):
            raise InvalidOptionError("rooms", rooms, "must be a set of rooms")
        self.rooms = frozenset(rooms)

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share: consecutive queues, and one of the remainder at the end."""
        if not is_member(request):
            return ()
        kept = tuple(queue for queue in request.queues if self._room(queue, request) in self.rooms)
        at = request.client_ids.index(request.client_id)
        size, surplus = divmod(len(kept), len(request.client_ids))
        share = kept[at * size : (at + 1) * size]
        if at < surplus:
            share += (kept[len(request.client_ids) * size + at],)
        return share

    @staticmethod
    def _room(queue: MessageQueue, request: AllocationRequest) -> str:
        return room_in_name(queue.broker_name) or zone_of(queue, request.zones)


class MachineRoomNearby:
    """Applies another strategy per room; queues of a room without members are shared by all
    (``AllocateMachineRoomNearby``)."""

    def __init__(self, inner: AllocationStrategy | None = None, *, resolver: MachineRoomResolver | None = None) -> None:
        self.inner = inner if inner is not None else Averagely()
        self.resolver = resolver if resolver is not None else RoomByNameOrZone()

    @property
    def name(self) -> str:
        """RocketMQ's name with the inner strategy's."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share, those of the same room first.

        Raises :class:`AllocationError` if the room of a queue or member is unknown.
        """
        if not is_member(request):
            return ()
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in request.queues:
            room = self.resolver.broker_deploy_in(queue, request.zones)
            if not room:
                raise AllocationError(f"Machine room is null for mq {queue_text(queue)}")  # plain: ok RocketMQ's text
            queues_in.setdefault(room, []).append(queue)
        client_ids_in: dict[str, list[str]] = {}
        for client_id in request.client_ids:
            room = self.resolver.consumer_deploy_in(client_id)
            if not room:
                raise AllocationError(f"Machine room is null for consumer id {client_id}")  # plain: ok RocketMQ's text
            client_ids_in.setdefault(room, []).append(client_id)

        own = self.resolver.consumer_deploy_in(request.client_id)
        share: tuple[MessageQueue, ...] = ()
        if own in queues_in:
            share += self._share(request, queues_in[own], client_ids_in[own])
        for room in sorted(queues_in.keys() - client_ids_in.keys()):
            share += self._share(request, queues_in[room], request.client_ids)
        return share

    def _share(
        self, request: AllocationRequest, queues: list[MessageQueue], client_ids: list[str] | tuple[str, ...]
    ) -> tuple[MessageQueue, ...]:
        return tuple(self.inner.allocate(replace(request, queues=tuple(queues), client_ids=tuple(client_ids))))


class Pinned:
    """Applies another strategy to the pinned members only, for a trial or for debugging; the others get no queues.

    A pin without present members has no effect.

    The agents report the same pins to all members and end them after their time (``pointsmanctl pin``). Consumers wrap
    their strategy at each rebalance, except ``ByConfig``: its queues stay with their members, which alone know them.
    """

    def __init__(self, inner: AllocationStrategy, client_ids: Iterable[str]) -> None:
        self._inner = inner
        self._client_ids = frozenset(client_ids)

    @property
    def name(self) -> str:
        """The inner strategy's name with a prefix."""
        return f"PINNED-{self._inner.name}"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        chosen = tuple(client_id for client_id in request.client_ids if client_id in self._client_ids)
        if not chosen:
            return tuple(self._inner.allocate(request))
        if not is_member(request) or request.client_id not in chosen:
            return ()
        return tuple(self._inner.allocate(replace(request, client_ids=chosen)))


STRATEGIES: Mapping[str, Callable[..., AllocationStrategy]] = {
    "averagely": Averagely,
    "averagely_by_circle": AveragelyByCircle,
    "by_config": ByConfig,
    "consistent_hash": ConsistentHash,
    "machine_room": MachineRoom,
    "machine_room_nearby": MachineRoomNearby,
}
"""By the name of the setting. Pins are not set here: the agents report them."""

_ROCKETMQ_NAMES = {
    "AVG": "averagely",
    "AVG_BY_CIRCLE": "averagely_by_circle",
    "CONFIG": "by_config",
    "CONSISTENT_HASH": "consistent_hash",
    "MACHINE_ROOM": "machine_room",
    "MACHINE_ROOM_NEARBY": "machine_room_nearby",
}


def to_strategy(name: str, **options: object) -> AllocationStrategy:
    """Make a strategy from its name, in this library or in RocketMQ, and its constructor's arguments.

    Raises :class:`InvalidOptionError` for an unknown name or argument.
    """
    make = STRATEGIES.get(_ROCKETMQ_NAMES.get(name, name))
    if make is None:
        raise InvalidOptionError("allocation_strategy", name, f"must be one of {', '.join(STRATEGIES)}")
    inner = options.get("inner")
    if isinstance(inner, str):
        options["inner"] = to_strategy(inner)
    try:
        return make(**options)
    except TypeError as error:
        raise InvalidOptionError("allocation_strategy", name, f"has invalid arguments: {error}") from error
