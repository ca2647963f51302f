"""How the queues of a topic are shared out among the members of a group (RocketMQ ``AllocateMessageQueueStrategy``)."""

from __future__ import annotations

from pointsman_client.allocation.averagely import Averagely, AveragelyByCircle
from pointsman_client.allocation.by_config import ByConfig
from pointsman_client.allocation.by_name import to_strategy
from pointsman_client.allocation.consistent_hash import ConsistentHash
from pointsman_client.allocation.machine_room import MachineRoom
from pointsman_client.allocation.machine_room_nearby import MachineRoomNearby
from pointsman_client.allocation.pinned import Pinned
from pointsman_client.allocation.room import MachineRoomResolver, RoomByNameOrZone
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
