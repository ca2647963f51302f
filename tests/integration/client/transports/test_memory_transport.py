"""The transport in memory beyond the common contract: it uses the test's clock, and its controls work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pointsman.manual_clock import ManualClock
from pointsman_client.errors import BrokerTimeoutError, OffsetBeyondEndError
from pointsman_client.memory import MemoryTransport
from pointsman_client.ports.transport import PulledMessages
from tests.kit.broker.under_test import QUEUE, outgoing

ADDR, SLAVE = "10.0.0.1:6379", "10.0.0.2:6379"


async def send(transport: MemoryTransport, body: str, addr: str = ADDR) -> Any:
    return await transport.send(addr, QUEUE, [outgoing(body)], timeout_seconds=3)


async def pull(transport: MemoryTransport, offset: int, addr: str = ADDR, wait_seconds: float = 0) -> PulledMessages:
    return await transport.pull(addr, QUEUE, offset, max_messages=32, wait_seconds=wait_seconds, timeout_seconds=3)


async def test_a_wait_passes_by_the_clock_of_the_test(clock: ManualClock) -> None:
    transport = MemoryTransport(clock=clock)
    waiting = asyncio.create_task(pull(transport, 0, wait_seconds=15))
    await clock.advance(14.9)
    assert not waiting.done()
    await clock.advance(0.1)
    assert await waiting == PulledMessages((), 0)


async def test_a_timeout_passes_by_the_clock_of_the_test(clock: ManualClock) -> None:
    transport = MemoryTransport(clock=clock)
    transport.hang(ADDR)
    sending = asyncio.create_task(send(transport, "a"))
    await clock.advance(2.9)
    assert not sending.done()
    await clock.advance(0.1)
    with pytest.raises(BrokerTimeoutError):
        await sending


async def test_a_broker_that_resumes_in_time_still_responds(clock: ManualClock) -> None:
    transport = MemoryTransport(clock=clock)
    transport.hang(ADDR)
    sending = asyncio.create_task(send(transport, "a"))
    await clock.advance(1)
    transport.bring_up(ADDR)
    assert (await sending).queue_offsets == (0,)


async def test_lost_messages_end_a_wait_immediately(clock: ManualClock) -> None:
    transport = MemoryTransport(clock=clock)
    await send(transport, "a")
    waiting = asyncio.create_task(pull(transport, 1, wait_seconds=15))
    await clock.advance(1)
    transport.lose_messages(ADDR)
    with pytest.raises(OffsetBeyondEndError):
        await waiting


async def test_a_replica_that_was_down_catches_up_when_it_is_back() -> None:
    transport = MemoryTransport()
    transport.replicate(ADDR, SLAVE)
    await send(transport, "a")
    transport.take_down(SLAVE)
    await send(transport, "b")
    transport.trim(ADDR, QUEUE, 1)
    transport.bring_up(SLAVE)
    assert [message.body for message in (await pull(transport, 1, SLAVE)).messages] == [b"b"]
    assert (await transport.min_offset(SLAVE, QUEUE, timeout_seconds=3)) == 1


async def test_a_replica_loses_what_its_master_loses() -> None:
    transport = MemoryTransport()
    transport.replicate(ADDR, SLAVE)
    await send(transport, "a")
    transport.lose_messages(ADDR)
    assert await pull(transport, 0, SLAVE) == PulledMessages((), 0)
