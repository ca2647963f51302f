"""What RegisterBroker keeps: the bytes of registrations that are held, and no others."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterable

import pytest

from namesrv.core.errors import LimitExceeded
from namesrv.core.events import Reason
from namesrv.core.liveness import LivenessRules
from namesrv.core.model import BrokerIdentity
from namesrv.core.name_server import NameServer
from namesrv.core.validation import IntervalBounds
from namesrv.rpc import register_call
from namesrv.rpc.register_call import RegisterCalls
from pointsman.v1.registration_service_pb2 import RegisterBrokerRequest
from tests.fakes import wire
from tests.fakes.manual_clock import ManualClock

TOPICS = 500
BOUNDS = IntervalBounds(min_heartbeat_interval=1.0, max_heartbeat_interval=300.0, max_expiry=3_600.0)


@pytest.fixture
def core() -> NameServer:
    return NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)


@pytest.fixture
def calls(core: NameServer) -> RegisterCalls:
    return RegisterCalls(core, clock=ManualClock(), bounds=BOUNDS, max_topics=TOPICS, record=lambda _: None)


async def stream(chunks: Iterable[RegisterBrokerRequest]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk.SerializeToString()


def registration(*, name: str = "a", version: int = 1, topics: int = TOPICS) -> list[RegisterBrokerRequest]:
    named = [wire.topic(f"topic-{number}") for number in range(topics)]
    return list(wire.registration(*named, who=wire.identity(name), version=(0, 0, version)))


async def test_of_one_broker_the_last_registration_alone_is_kept(calls: RegisterCalls) -> None:
    await calls.register_broker(stream(registration()))
    size = calls.remembered_bytes
    for version in range(2, 10):
        await calls.register_broker(stream(registration(version=version)))
    assert 0 < size == calls.remembered_bytes


async def test_of_a_broker_that_left_nothing_is_kept(core: NameServer, calls: RegisterCalls) -> None:
    for number in range(8):
        answer = await calls.register_broker(stream(registration(name=f"b{number}")))
        identity = BrokerIdentity("c1", f"b{number}", 0, "10.0.0.1:10911")
        assert core.registration_of(identity) is not None
        core.unregister(identity, answer.generation, reason=Reason.SHUTDOWN, now=0.0)
    gc.collect()
    await calls.register_broker(stream(registration(name="small", topics=1)))
    assert calls.remembered_bytes == 0


async def test_a_registration_of_more_bytes_than_its_topics_can_have_is_refused(
    core: NameServer, calls: RegisterCalls
) -> None:
    first, *_ = registration(topics=0)
    first.ClearField("commit")
    padding = RegisterBrokerRequest.FromString(b"\x82\x7d\x80\x80\x04" + bytes(64 * 1024))
    with pytest.raises(LimitExceeded, match="bytes_per_registration"):
        await calls.register_broker(stream([first, *[padding] * 5]))
    assert core.replicas() == []
    assert calls.coming_in_bytes == 0


async def test_registrations_that_come_in_together_share_a_bound(
    calls: RegisterCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register_call, "COMING_IN_BYTES", 1_000)
    with pytest.raises(LimitExceeded, match="bytes_of_registrations_at_once"):
        await calls.register_broker(stream(registration()))
    assert calls.coming_in_bytes == 0
