"""How a topic's queues are shared out among the members of a group: RocketMQ's strategies, and the rules for yours."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.core.route import BrokerKey
from pointsman_client.errors import AllocationError, InvalidOptionError

Zones = Mapping[BrokerKey, str]
"""Zone of each replica group, from the route; without an entry: none is known."""


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """The queues of one topic and the members that share them, as one member sees them."""

    group: str
    client_id: str
    """The member that asks for its own share."""
    queues: tuple[MessageQueue, ...]
    """Sorted."""
    client_ids: tuple[str, ...]
    """Sorted; all ASCII, so that Python's order is Java's."""
    zones: Zones = field(default_factory=lambda: MappingProxyType({}))


class AllocationStrategy(Protocol):
    """Every member asks on its own, so the same request but for ``client_id`` must give shares that fit together."""

    @property
    def name(self) -> str:
        """For logs and ``describe``."""
        ...

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share. Pure. Raises :class:`AllocationError`."""
        ...


def is_member(request: AllocationRequest) -> bool:
    """Whether the asking client is one of the members; if not, its share is empty.

    Every strategy but a configured list checks this first. Raises :class:`AllocationError`, in RocketMQ's order and
    words.
    """
    if not request.client_id:
        raise AllocationError("currentCID is empty")
    if not request.queues:
        raise AllocationError("mqAll is null or mqAll empty")
    if not request.client_ids:
        raise AllocationError("cidAll is null or cidAll empty")
    return request.client_id in request.client_ids


def queue_text(queue: MessageQueue) -> str:
    """Return a queue as RocketMQ writes it (``MessageQueue.toString``): consistent hashing hashes it, errors name it.

    It has no cluster, since RocketMQ's queues have none.
    """
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


VIRTUAL_NODES = 10
"""RocketMQ's default."""


class ConsistentHash:
    """RocketMQ's ``AllocateMessageQueueConsistentHash``, point for point.

    Its shares are uneven, the more so the fewer virtual nodes there are; without any nobody gets a queue. All members
    must have the same number.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 0:
            raise AllocationError(f"illegal virtualNodeCnt :{virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        points, owners = _ring(request.client_ids, self._virtual_nodes)
        if not points:
            return ()
        return tuple(
            queue
            for queue in request.queues
            if owners[bisect_left(points, _hash(queue_text(queue))) % len(points)] == request.client_id
        )


@lru_cache(maxsize=4)
def _ring(client_ids: tuple[str, ...], virtual_nodes: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The points in order and whose they are. Kept for a group's next topic: hashing is most of the work."""
    ring = {_hash(f"{client_id}-{number}"): client_id for client_id in client_ids for number in range(virtual_nodes)}
    points = tuple(sorted(ring))
    return points, tuple(ring[point] for point in points)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])


class Averagely:
    """Consecutive queues (RocketMQ ``AllocateMessageQueueAveragely``): most queues of a member are on one broker."""

    name = "AVG"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share; the members before the remainder get one queue more."""
        if not is_member(request):
            return ()
        at = request.client_ids.index(request.client_id)
        size, surplus = divmod(len(request.queues), len(request.client_ids))
        start = at * size + min(at, surplus)
        return request.queues[start : start + size + (at < surplus)]


class AveragelyByCircle:
    """Every n-th queue (RocketMQ ``AllocateMessageQueueAveragelyByCircle``): each broker's queues are spread."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share."""
        if not is_member(request):
            return ()
        return request.queues[request.client_ids.index(request.client_id) :: len(request.client_ids)]


class ByConfig:
    """The configured queues as they are, unchecked (RocketMQ ``AllocateMessageQueueByConfig``).

    The configuration must have each queue in one list. The retry topic's queues need no list:
    consumers share them averagely, whatever the strategy.
    """

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue] = ()) -> None:
        self._queues = tuple(queues)

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:  # noqa: ARG002 - the protocol's
        """Return the list, those of other topics included."""
        return self._queues


class MachineRoomResolver(Protocol):
    """RocketMQ's ``MachineRoomResolver``. Every member must come to the same answers; empty: not known."""

    def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:
        """Return the room of a queue's broker."""
        ...

    def consumer_deploy_in(self, client_id: str) -> str:
        """Return the room of a client."""
        ...


class RoomByNameOrZone:
    """The default: ``room@broker``, else the zone of the queue's broker; the text after a client id's second ``@``."""

    def broker_deploy_in(self, queue: MessageQueue, zones: Zones) -> str:
        """Return the room of a queue's broker."""
        return room_in_name(queue.broker_name) or zone_of(queue, zones)

    def consumer_deploy_in(self, client_id: str) -> str:
        """Return the room of a client ``address@instance@zone``."""
        return "".join(client_id.split("@", 2)[2:])


def room_in_name(broker_name: str) -> str:
    """The room of ``room@broker``; empty: the name has not exactly these two parts."""
    # Java's String.split drops empty parts at the end.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else ""


def zone_of(queue: MessageQueue, zones: Zones) -> str:
    """The zone of a queue's broker; empty: not known."""
    return zones.get(queue.broker_key, "")


class MachineRoom:
    """The queues in given rooms (RocketMQ ``AllocateMessageQueueByMachineRoom``): no member gets those of other rooms.

    All members must have the same rooms set. A queue's room stands in ``room@broker``, which RocketMQ knows alone, or
    else it is the zone that the route has for its broker.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        if isinstance(rooms, str) or not isinstance(rooms, Collection):
            raise InvalidOptionError("rooms", rooms, "must be a set of rooms")
        self._rooms = frozenset(rooms)

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share: consecutive queues, and one of the surplus at the end."""
        if not is_member(request):
            return ()
        kept = tuple(queue for queue in request.queues if self._room(queue, request) in self._rooms)
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
    """Another strategy in each room, and over all members for rooms without any (``AllocateMachineRoomNearby``)."""

    def __init__(self, inner: AllocationStrategy | None = None, *, resolver: MachineRoomResolver | None = None) -> None:
        self._inner = inner if inner is not None else Averagely()
        self._resolver = resolver if resolver is not None else RoomByNameOrZone()

    @property
    def name(self) -> str:
        """RocketMQ's name with the inner strategy's."""
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(self, request: AllocationRequest) -> tuple[MessageQueue, ...]:
        """Return the member's share, its own room's queues first. Raises if the room of anybody is not known."""
        if not is_member(request):
            return ()
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in request.queues:
            room = self._resolver.broker_deploy_in(queue, request.zones)
            if not room:
                raise AllocationError(f"Machine room is null for mq {queue_text(queue)}")
            queues_in.setdefault(room, []).append(queue)
        client_ids_in: dict[str, list[str]] = {}
        for client_id in request.client_ids:
            room = self._resolver.consumer_deploy_in(client_id)
            if not room:
                raise AllocationError(f"Machine room is null for consumer id {client_id}")
            client_ids_in.setdefault(room, []).append(client_id)

        own = self._resolver.consumer_deploy_in(request.client_id)
        share: tuple[MessageQueue, ...] = ()
        if own in queues_in:
            share += self._share(request, queues_in[own], client_ids_in[own])
        for room in sorted(queues_in.keys() - client_ids_in.keys()):
            share += self._share(request, queues_in[room], request.client_ids)
        return share

    def _share(
        self, request: AllocationRequest, queues: list[MessageQueue], client_ids: list[str] | tuple[str, ...]
    ) -> tuple[MessageQueue, ...]:
        return tuple(self._inner.allocate(replace(request, queues=tuple(queues), client_ids=tuple(client_ids))))


class Pinned:
    """Another strategy among the pinned members, for a trial or to look for a fault; the others get nothing.

    A pin that names nobody who is there changes nothing, and a list that is configured (``ByConfig``) does not grow.

    The agents say who is pinned and for how long, the same to all members, so a pin ends by itself
    (``pointsmanctl pin``). Consumers wrap their strategy anew at each rebalance.
    """

    def __init__(self, inner: AllocationStrategy, client_ids: Iterable[str]) -> None:
        self._inner = inner
        self._client_ids = frozenset(client_ids)

    @property
    def name(self) -> str:
        """The inner strategy's with a prefix."""
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
"""A pin is no setting: it comes from the agents."""

_ROCKETMQ_NAMES = {
    "AVG": "averagely",
    "AVG_BY_CIRCLE": "averagely_by_circle",
    "CONFIG": "by_config",
    "CONSISTENT_HASH": "consistent_hash",
    "MACHINE_ROOM": "machine_room",
    "MACHINE_ROOM_NEARBY": "machine_room_nearby",
}


def to_strategy(name: str, **options: object) -> AllocationStrategy:
    """Make a strategy from its name, ours or RocketMQ's, and its constructor's arguments.

    Raises :class:`InvalidOptionError` for a name or an argument that is not known.
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
        raise InvalidOptionError("allocation_strategy", name, f"cannot be made so: {error}") from error
