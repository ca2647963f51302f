"""Only the queues of some machine rooms, shared out evenly."""

from __future__ import annotations

from collections.abc import Collection

from pointsman_client.allocation.precondition import is_member
from pointsman_client.allocation.room import room_in_name, zone_of
from pointsman_client.allocation.strategy import AllocationRequest
from pointsman_client.errors import InvalidOptionError
from pointsman_client.message_queue import MessageQueue


class MachineRoom:
    """The queues in given rooms (RocketMQ ``AllocateMessageQueueByMachineRoom``): nobody gets those of other rooms.

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
