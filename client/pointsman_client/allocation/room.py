"""In which machine room a queue or a client is: by its name, or by the zone that the route has for its broker."""

from __future__ import annotations

from typing import Protocol

from pointsman_client.allocation.strategy import Zones
from pointsman_client.message_queue import MessageQueue


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
