"""One KeepAlive call: beats out, answers and the call's end in."""

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
    """An open stream. A task of ``tasks`` reads it all the time, so that its end is known when it happens.

    (Reading only after each beat would notice a restarted name server half a minute late; and in grpc.aio a cancelled
    read cancels the whole call.) ``on_event`` is called for each thing that arrives.
    """

    def __init__(
        self, stub: RegistrationServiceAsyncStub, *, tasks: asyncio.TaskGroup, on_event: Callable[[], None]
    ) -> None:
        self._call = stub.KeepAlive()
        self._on_event = on_event
        self._inbox: asyncio.Queue[wire.BeatAnswer | FailedCall] = asyncio.Queue()
        self._reader = tasks.create_task(self._read())

    async def send(self, beat: wire.Beat) -> None:
        """Send a beat. On a broken stream nothing is sent; :meth:`receive` tells."""
        try:
            await self._call.write(wire.KeepAliveRequest(beat=beat))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return

    async def receive(self) -> wire.BeatAnswer | FailedCall:
        """Wait for the next answer, or for the end of the stream."""
        return await self._inbox.get()

    def take(self) -> wire.BeatAnswer | FailedCall | None:
        """Return what has arrived and was not received, without waiting."""
        return None if self._inbox.empty() else self._inbox.get_nowait()

    async def finish(self) -> None:
        """Say that no more beats will come, and wait until the server has closed its side."""
        await self._call.done_writing()
        await asyncio.wait({self._reader})

    async def cancel(self) -> None:
        """Break the stream off."""
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
