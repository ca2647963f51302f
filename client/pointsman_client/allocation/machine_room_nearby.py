"""Queues go to members in their own machine room, as long as there are any."""

from __future__ import annotations

from dataclasses import replace

from pointsman_client.allocation.averagely import Averagely
from pointsman_client.allocation.precondition import is_member
from pointsman_client.allocation.queue_text import queue_text
from pointsman_client.allocation.room import MachineRoomResolver, RoomByNameOrZone
from pointsman_client.allocation.strategy import AllocationRequest, AllocationStrategy
from pointsman_client.errors import AllocationError
from pointsman_client.message_queue import MessageQueue


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
