"""The end of a KeepAlive stream: which broker it marks as suspect, when, and when not."""

from __future__ import annotations

import grpc
import pytest

from pointsman.manual_clock import ManualClock
from pointsman.v1 import registration_service_pb2 as messages
from pointsman.v1.registration_service_pb2 import Beat, KeepAliveRequest
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman_namesrv.app import NameServerApp
from pointsman_namesrv.rpc import registration
from tests.kit.name_server import wire
from tests.kit.name_server.peer import Peer
from tests.kit.waiting import eventually

START_IS_OVER = 121.0
"""Past the first expiry after the server's start, in which a broken stream gets the full expiry."""


def states(server: NameServerApp) -> list[str]:
    return [replica.state.phase.value for _, replica in server.core.replicas()]


class Stream:
    """A KeepAlive stream over its own connection."""

    def __init__(self, server: NameServerApp, generation: int) -> None:
        self._channel = grpc.aio.insecure_channel(server.addr, options=[("grpc.use_local_subchannel_pool", 1)])
        self._call = RegistrationServiceStub(self._channel).KeepAlive()
        self._generation = generation

    async def beat(self, *, hand_over: bool = False) -> int:
        beat = wire.beat(self._generation, hand_over=hand_over)
        await self._call.write(messages.KeepAliveRequest(beat=beat))
        answer = await self._call.read()
        assert isinstance(answer, messages.KeepAliveResponse)
        return answer.answer.status

    async def end(self) -> None:
        self._call.cancel()  # below grpcio 1.83 closing a channel leaves its calls open
        await self._channel.close()

    async def status(self) -> grpc.StatusCode:
        return await self._call.code()


@pytest.fixture
async def generation(server: NameServerApp, peer: Peer, clock: ManualClock) -> int:  # noqa: ARG001  # server first
    """A broker registered when the start of the server is over."""
    await clock.advance(START_IS_OVER)
    return await peer.register("orders")


async def test_the_response_to_an_equal_heartbeat_is_the_current_state_and_not_the_cached_one(
    peer: Peer, generation: int
) -> None:
    stream = peer.registration.KeepAlive()
    who = wire.identity(broker_id=1, addr="10.0.0.2:1")
    slave = await peer.register(who=who)

    async def answer() -> messages.BeatAnswer:
        await stream.write(KeepAliveRequest(beat=wire.beat(slave, who=who)))
        response = await stream.read()
        assert isinstance(response, messages.KeepAliveResponse)
        return response.answer

    assert (await answer()).group.master_addr == "10.0.0.1:10911"
    leave = wire.unregistration(wire.identity(), generation)
    await peer.registration.UnregisterBroker(leave)
    assert (await answer()).group.master_addr == ""
    await peer.register(who=who)
    assert (await answer()).status == messages.BEAT_STATUS_STALE_GENERATION
    stream.cancel()


async def test_a_broken_stream_marks_the_broker_and_removes_it_after_the_grace(
    server: NameServerApp, generation: int, clock: ManualClock
) -> None:
    stream = Stream(server, generation)
    await stream.beat()
    await stream.end()
    await eventually(lambda: states(server) == ["SUSPECT"])
    assert "orders" in server.core.routes.topic_names()

    await clock.advance(9)
    assert states(server) == ["SUSPECT"]
    await clock.advance(6)

    assert states(server) == []
    last = server.parts.recorder.recent.of("a")[-1].event
    assert (last.kind, last.reason) == ("EXPIRED", "STREAM_BROKEN")


@pytest.mark.parametrize("nonsense", [b"\xff\xff", KeepAliveRequest(beat=Beat(generation=1)).SerializeToString()])
async def test_a_stream_ended_for_an_invalid_heartbeat_does_not_mark_its_broker(
    server: NameServerApp, generation: int, clock: ManualClock, nonsense: bytes
) -> None:
    async with grpc.aio.insecure_channel(server.addr) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(
            "/pointsman.v1.RegistrationService/KeepAlive"
        )()
        await call.write(KeepAliveRequest(beat=wire.beat(generation)).SerializeToString())
        await call.read()
        await call.write(nonsense)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await clock.advance(20)
    assert states(server) == ["UP"]
    assert [replica.pulse.stream for _, replica in server.core.replicas()] == [None]


async def test_streams_are_limited_and_one_more_is_refused_with_the_reason(
    server: NameServerApp, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.parts.registration._stream_bound, "bound", 1)
    first = Stream(server, generation)
    await first.beat()
    second = Stream(server, generation)
    assert await second.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await first.end()
    await eventually(lambda: server.parts.registration.stream_count == 0)
    third = Stream(server, generation)
    assert await third.beat() == messages.BEAT_STATUS_OK
    for stream in (second, third):
        await stream.end()


async def test_a_stream_that_no_registered_broker_uses_is_ended(
    server: NameServerApp, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_BEAT_SECONDS", 0.2)
    silent, unknown, used = Stream(server, generation), Stream(server, generation + 1), Stream(server, generation)
    assert await used.beat() == messages.BEAT_STATUS_OK
    assert await unknown.beat() == messages.BEAT_STATUS_STALE_GENERATION
    for stream in (silent, unknown):
        assert await stream.status() is grpc.StatusCode.DEADLINE_EXCEEDED
        await stream.end()
    assert await used.beat() == messages.BEAT_STATUS_OK
    await used.end()


async def test_an_agent_that_hands_over_keeps_its_broker_in_the_routes_for_a_minute(
    server: NameServerApp, generation: int, clock: ManualClock
) -> None:
    stream = Stream(server, generation)
    await stream.beat(hand_over=True)
    await stream.end()
    await eventually(lambda: server.metrics.streams._value.get() == 0)
    await clock.advance(60)
    assert states(server) == ["UP"]
    await clock.advance(5.5)
    assert states(server) == []


async def test_a_server_that_stops_ends_the_streams_itself_and_blames_no_broker(clock: ManualClock) -> None:
    from tests.kit.name_server.in_process import running_name_server  # noqa: PLC0415  # this test ends the server itself

    async with running_name_server(clock=clock) as server:
        await clock.advance(START_IS_OVER)
        async with grpc.aio.insecure_channel(server.addr) as channel:
            registered = await RegistrationServiceStub(channel).RegisterBroker(wire.registration())
        stream = Stream(server, registered.generation)
        await stream.beat()
    assert await stream.status() is grpc.StatusCode.UNAVAILABLE
    kinds = [record.event.kind for record in server.parts.recorder.recent.of("a")]
    assert kinds == ["REGISTERED", "NAMESRV_STOPPED"]
    await stream.end()
