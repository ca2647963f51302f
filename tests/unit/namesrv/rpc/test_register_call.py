"""The memory of RegisterBroker: only the bytes of current registrations."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterable

import pytest

from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended
from pointsman.manual_clock import ManualClock
from pointsman.v1.registration_service_pb2 import RegisterBrokerRequest
from pointsman.wire.refusals import TooSlow
from pointsman_namesrv.core.model import BrokerIdentity, Reason
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.request_rules import IntervalBounds
from pointsman_namesrv.rpc import register_call
from pointsman_namesrv.rpc.register_call import RegisterCalls
from tests.kit.name_server import wire

TOPICS = 500
PEER = Peer("10.0.0.7:40000", "10.0.0.7:40000")
BOUNDS = IntervalBounds(min_heartbeat_interval=1.0, max_heartbeat_interval=300.0, max_expiry=3_600.0)


@pytest.fixture
def calls(core: NameServer) -> RegisterCalls:
    return RegisterCalls(core, clock=ManualClock(), bounds=BOUNDS, max_topics=TOPICS, record=lambda _: None)


async def stream(chunks: Iterable[RegisterBrokerRequest]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk.SerializeToString()


def registration(*, name: str = "a", version: int = 1, topics: int = TOPICS) -> list[RegisterBrokerRequest]:
    named = [wire.topic(f"topic-{number}") for number in range(topics)]
    return list(wire.registration(*named, who=wire.identity(name), version=(0, 0, version)))


async def test_only_the_last_registration_of_a_broker_is_kept(calls: RegisterCalls) -> None:
    await calls.register_broker(stream(registration()), PEER)
    size = calls._known.bytes
    for version in range(2, 10):
        await calls.register_broker(stream(registration(version=version)), PEER)
    assert 0 < size == calls._known.bytes


async def test_nothing_is_kept_of_a_broker_that_left(core: NameServer, calls: RegisterCalls) -> None:
    for number in range(8):
        answer = await calls.register_broker(stream(registration(name=f"b{number}")), PEER)
        identity = BrokerIdentity("c1", f"b{number}", 0, "10.0.0.1:10911")
        assert core.registration_of(identity) is not None
        core.unregister(identity, answer.generation, reason=Reason.SHUTDOWN, now=0.0)
    gc.collect()
    await calls.register_broker(stream(registration(name="small", topics=1)), PEER)
    assert calls._known.bytes == 0


async def test_a_registration_of_more_bytes_than_its_topics_can_have_is_refused(
    core: NameServer, calls: RegisterCalls
) -> None:
    first, *_ = registration(topics=0)
    first.ClearField("commit")
    padding = RegisterBrokerRequest.FromString(b"\x82\x7d\x80\x80\x04" + bytes(64 * 1024))
    with pytest.raises(LimitExceeded, match="bytes_per_registration"):
        await calls.register_broker(stream([first, *[padding] * 5]), PEER)
    assert core.replicas() == []
    assert calls.coming_in_bytes == 0


async def test_registrations_that_come_in_together_share_a_bound(
    calls: RegisterCalls,
) -> None:
    calls._memory.bound = 1_000
    with pytest.raises(LimitExceeded, match="bytes_of_registrations_at_once"):
        await calls.register_broker(stream(registration()), PEER)
    assert calls.coming_in_bytes == 0


class Stalled:
    """Chunks that arrive when the test allows it, and then none."""

    def __init__(self, calls: RegisterCalls, key: str) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.task = asyncio.create_task(calls.register_broker(self.requests(), Peer(key, key)))

    async def requests(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.chunks.get()

    async def send(self, chunk: RegisterBrokerRequest) -> None:
        self.chunks.put_nowait(chunk.SerializeToString())
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self) -> BaseException | None:
        self.task.cancel()
        (result,) = await asyncio.gather(self.task, return_exceptions=True)
        return result if isinstance(result, BaseException) else None


@pytest.mark.parametrize("bound", ["_silent", "_accepted"])
async def test_slots_of_stalled_streams_do_not_block_another_registration(calls: RegisterCalls, bound: str) -> None:
    getattr(calls, bound).bound = 3
    first, *_ = registration(topics=3)
    first.ClearField("commit")
    stalled = [Stalled(calls, "greedy") for _ in range(3)]
    for each in stalled:
        if bound == "_accepted":
            await each.send(first)
        else:
            await asyncio.sleep(0)
    with pytest.raises(LimitExceeded, match="at most 3 registration"):
        await calls.register_broker(stream(registration()), Peer("greedy", "greedy"))

    assert (await calls.register_broker(stream(registration()), PEER)).generation > 0
    ended = [await each.end() for each in stalled]
    assert [type(error) for error in ended] == [asyncio.CancelledError, asyncio.CancelledError, Ended]
    assert "at most 3 registration" in str(ended[2])
    assert [calls._silent.total, calls._accepted.total, calls.coming_in_bytes] == [0, 0, 0]


async def test_the_memory_of_a_stalled_registration_goes_to_one_that_needs_less(calls: RegisterCalls) -> None:
    large, small = registration(topics=TOPICS), registration(name="b", topics=3)
    large[0].ClearField("commit")
    greedy = Stalled(calls, "greedy")
    await greedy.send(large[0])
    held = calls.coming_in_bytes
    assert held > len(large[0].SerializeToString()) + 130 * TOPICS
    calls._memory.bound = held
    assert (await calls.register_broker(stream(small), PEER)).generation > 0
    ended = await greedy.end()
    assert isinstance(ended, Ended)
    assert "bytes_of_registrations" in str(ended)
    assert calls.coming_in_bytes == 0


async def test_a_stream_without_a_first_chunk_is_ended(calls: RegisterCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_call, "FIRST_CHUNK_SECONDS", 0.01)
    silent = Stalled(calls, "silent")
    with pytest.raises(TooSlow, match="first chunk did not arrive"):
        await silent.task
    assert calls._silent.total == 0
