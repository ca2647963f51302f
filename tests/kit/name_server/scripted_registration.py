"""A registration service on a real socket with scripted responses, which records its requests in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc import status_pb2
from grpc_status import rpc_status

from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.v1.registration_service_pb2_grpc import (
    RegistrationServiceServicer,
    add_RegistrationServiceServicer_to_server,
)

PATIENCE_SECONDS = 60.0
"""How long a test waits for an expected event."""


@dataclass(frozen=True)
class Registration:
    """A registration, its chunks put together."""

    broker: wire.BrokerRegistration
    topics: list[str]
    chunk_sizes: list[int]
    commit: wire.RegistrationCommit | None


@dataclass(frozen=True)
class StreamOpened:
    """A KeepAlive call began."""


@dataclass(frozen=True)
class StreamEnded:
    """A KeepAlive call ended. A handler cannot distinguish a broken stream from a clean end."""


Call = Registration | wire.UpdateTopicsRequest | wire.Beat | wire.UnregisterBrokerRequest | wire.ReportQueueStatsRequest
Event = Call | StreamOpened | StreamEnded


class Odd(Enum):
    """What a server may do instead of responding."""

    HANG = "accept and never answer"
    END = "end the stream without an error"


class ScriptedRegistrationServer(RegistrationServiceServicer):
    """Accepts with OK, except where ``register_outcomes`` or ``beat_answers`` have entries, first in first out.

    ``heartbeat_interval`` and ``expiry`` (seconds) are what it holds agents to; None leaves them out.
    """

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.register_outcomes: deque[status_pb2.Status | Odd] = deque()
        self.update_outcomes: deque[status_pb2.Status | Odd] = deque()
        self.beat_answers: deque[wire.BeatAnswer | grpc.StatusCode | Odd] = deque()
        self.unregister_outcomes: deque[Odd | grpc.StatusCode] = deque()
        self.generation = 100
        self.live_queues: list[bytes] = []
        """The measurement that each heartbeat carried; empty: none."""
        self.keeps_streams_open = False
        """Whether the server's side of a stream stays open when the agent has closed its own."""
        self.unasked_answers: asyncio.Queue[wire.BeatAnswer] = asyncio.Queue()
        """Sent on the stream after the answer to the next heartbeat, in addition to it."""
        self.heartbeat_interval: float | None = None
        self.expiry: float | None = None
        self.superseded: list[broker_pb2.BrokerIdentity] = []
        """Sent with the response to the next registration."""
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server()
        add_RegistrationServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """Break every stream and free the port; :meth:`start` takes it again."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def next_event(self) -> Event:
        """The next event from an agent, including starts and ends of streams."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.events.get()

    async def next_call(self) -> Call:
        """The next call of an agent, without starts and ends of streams."""
        while True:
            event = await self.next_event()
            if not isinstance(event, StreamOpened | StreamEnded):
                return event

    async def next_registration(self) -> Registration:
        event = await self.next_call()
        assert isinstance(event, Registration), event
        return event

    async def next_update(self) -> wire.UpdateTopicsRequest:
        event = await self.next_call()
        assert isinstance(event, wire.UpdateTopicsRequest), event
        return event

    async def next_beat(self) -> wire.Beat:
        event = await self.next_call()
        assert isinstance(event, wire.Beat), event
        return event

    async def next_unregister(self) -> wire.UnregisterBrokerRequest:
        event = await self.next_call()
        assert isinstance(event, wire.UnregisterBrokerRequest), event
        return event

    def said_nothing_more(self) -> bool:
        return self.events.empty()

    async def RegisterBroker(self, request_iterator, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802  # grpc's names
        broker, topics, sizes, commit = wire.BrokerRegistration(), [], [], None
        async for request in request_iterator:
            if request.HasField("broker"):
                broker = request.broker
            topics += [each.topic for each in request.topics]
            sizes.append(len(request.topics))
            commit = request.commit if request.HasField("commit") else None
        self.events.put_nowait(Registration(broker, topics, sizes, commit))
        outcome = self.register_outcomes.popleft() if self.register_outcomes else None
        if outcome is Odd.HANG:
            await asyncio.Event().wait()
        if isinstance(outcome, status_pb2.Status):
            await context.abort_with_status(rpc_status.to_status(outcome))
        self.generation += 1
        superseded, self.superseded = self.superseded, []
        return wire.RegisterBrokerResponse(
            generation=self.generation,
            superseded=superseded,
            heartbeat_interval=_duration(self.heartbeat_interval),
            expiry=_duration(self.expiry),
        )

    async def KeepAlive(self, request_iterator, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802  # grpc's names
        self.events.put_nowait(StreamOpened())
        try:
            async for request in request_iterator:
                self.live_queues.append(request.live_queues)
                self.events.put_nowait(request.beat)
                answer = self.beat_answers.popleft() if self.beat_answers else None
                if answer is Odd.HANG:
                    continue
                if answer is Odd.END:
                    return
                if isinstance(answer, grpc.StatusCode):
                    await context.abort(answer, "as the test says")
                said = answer if isinstance(answer, wire.BeatAnswer) else wire.BeatAnswer(status=wire.BEAT_STATUS_OK)
                yield wire.KeepAliveResponse(answer=said)
                while not self.unasked_answers.empty():
                    yield wire.KeepAliveResponse(answer=self.unasked_answers.get_nowait())
            if self.keeps_streams_open:
                await asyncio.Event().wait()
        finally:
            self.events.put_nowait(StreamEnded())

    async def UnregisterBroker(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802  # grpc's names
        self.events.put_nowait(request)
        outcome = self.unregister_outcomes.popleft() if self.unregister_outcomes else None
        if outcome is Odd.HANG:
            await asyncio.Event().wait()
        if isinstance(outcome, grpc.StatusCode):
            await context.abort(outcome, "as the test says")
        return wire.UnregisterBrokerResponse(status=wire.UNREGISTER_STATUS_UNREGISTERED)

    async def UpdateTopics(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802  # grpc's names
        self.events.put_nowait(request)
        outcome = self.update_outcomes.popleft() if self.update_outcomes else None
        if outcome is Odd.HANG:
            await asyncio.Event().wait()
        if isinstance(outcome, status_pb2.Status):
            await context.abort_with_status(rpc_status.to_status(outcome))
        return wire.UpdateTopicsResponse()

    async def ReportQueueStats(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, ARG002, N802  # grpc's names
        self.events.put_nowait(request)
        return wire.ReportQueueStatsResponse(status=wire.REPORT_QUEUE_STATS_STATUS_RECORDED)

    async def Heartbeat(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, ARG002, N802  # grpc's names
        raise AssertionError("the agent beats on its stream")


@asynccontextmanager
async def scripted_registration_server() -> AsyncIterator[ScriptedRegistrationServer]:
    """Serve on a free port for the length of the block."""
    server = ScriptedRegistrationServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def answer(
    status: wire.BeatStatus.ValueType, *, holder_addr: str = "", held: broker_pb2.DataVersion | None = None
) -> wire.BeatAnswer:
    return wire.BeatAnswer(status=status, holder_addr=holder_addr, held_data_version=held)


def _duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
