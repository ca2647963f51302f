"""Strategies by the name that a configuration has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pointsman_client.allocation.averagely import Averagely, AveragelyByCircle
from pointsman_client.allocation.by_config import ByConfig
from pointsman_client.allocation.consistent_hash import ConsistentHash
from pointsman_client.allocation.machine_room import MachineRoom
from pointsman_client.allocation.machine_room_nearby import MachineRoomNearby
from pointsman_client.allocation.strategy import AllocationStrategy
from pointsman_client.errors import InvalidOptionError

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
