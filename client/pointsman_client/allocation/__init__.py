"""How the queues of a topic are shared out among the members of a group (RocketMQ ``AllocateMessageQueueStrategy``)."""

from __future__ import annotations

from pointsman_client.allocation.consistent_hash import ConsistentHash
from pointsman_client.allocation.strategies import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    MachineRoom,
    MachineRoomNearby,
    MachineRoomResolver,
    Pinned,
    RoomByNameOrZone,
    to_strategy,
)
from pointsman_client.allocation.strategy import AllocationRequest, AllocationStrategy

__all__ = [
    "AllocationRequest",
    "AllocationStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ConsistentHash",
    "MachineRoom",
    "MachineRoomNearby",
    "MachineRoomResolver",
    "Pinned",
    "RoomByNameOrZone",
    "to_strategy",
]
