"""One KeepAlive call: sends heartbeats, receives responses and the end of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from pointsman.v1 import registration_service_pb2 as wire
from pointsman_agent.registration.registration_failure import STREAM_ENDED, FailedCall, from_error

if TYPE_CHECKING:
    from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceAsyncStub


class BeatStream:
    """An open stream. A task of ``tasks`` reads it all the time, so its end is noticed immediately.

    (Reading only after each heartbeat would notice a restarted name server half a minute late. In grpc.aio a cancelled
    read cancels the complete call.) ``on_event`` is called for each response and for the end.
    """

    def __init__(
        self, stub: RegistrationServiceAsyncStub, *, tasks: asyncio.TaskGroup, on_event: Callable[[], None]
    ) -> None:
        self._call = stub.KeepAlive()
        self._on_event = on_event
        self._inbox: asyncio.Queue[wire.BeatAnswer | FailedCall] = asyncio.Queue()
        self._reader = tasks.create_task(self._read())

    async def send(self, beat: wire.Beat, live_queues: bytes = b"") -> None:
        """Send a heartbeat, with a measurement of the queues if there is a new one.

        On a broken stream nothing is sent; :meth:`receive` returns the failure.
        """
        try:
            await self._call.write(wire.KeepAliveRequest(beat=beat, live_queues=live_queues))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return

    async def receive(self) -> wire.BeatAnswer | FailedCall:
        """Wait for the next response, or for the end of the stream."""
        return await self._inbox.get()

    def take(self) -> wire.BeatAnswer | FailedCall | None:
        """Return the next received item without waiting, or None."""
        return None if self._inbox.empty() else self._inbox.get_nowait()

    async def finish(self) -> None:
        """End the sending side, and wait until the server has closed its side."""
        await self._call.done_writing()
        await asyncio.wait({self._reader})

    async def cancel(self) -> None:
        """Cancel the stream."""
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        try:
            while isinstance(response := await self._call.read(), wire.KeepAliveResponse):
                self._put(response.answer)
            self._put(STREAM_ENDED)
        except grpc.aio.AioRpcError as error:
            self._put(from_error(error))

    def _put(self, event: wire.BeatAnswer | FailedCall) -> None:
        self._inbox.put_nowait(event)
        self._on_event()
